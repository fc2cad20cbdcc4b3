//! Durations and sizes as people write them: `"30m"`, `"25MiB"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in text such as `100ms`, `1s`, `30m` or `1h 30m`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl Span {
    /// A span of whole seconds.
    pub const fn secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .trim()
            .parse::<jiff::Span>()
            .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()))
            .map_err(|_| format!("`{text}` is not a duration (write it like \"100ms\", \"1s\", \"30m\" or \"12h\")"))?;
        Duration::try_from(parsed).map(Self).map_err(|_| format!("`{text}` is negative, a duration cannot be"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
        for (size, unit) in units {
            if millis >= size && millis.is_multiple_of(size) {
                return write!(f, "{}{unit}", millis / size);
            }
        }
        if millis == 0 { write!(f, "0s") } else { write!(f, "{millis}ms") }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A number of bytes in text such as `25MiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<bytesize::ByteSize>()
            .map(|size| Self(size.0))
            .map_err(|_| format!("`{text}` is not a size (write it like \"512KiB\", \"25MiB\" or \"1GiB\")"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_back_as_written() {
        for text in ["0s", "100ms", "1s", "90s", "30m", "12h", "30d", "1500ms"] {
            let span: Span = text.parse().expect(text);
            assert_eq!(span.to_string().parse::<Span>().expect(text), span);
        }
        assert_eq!("30m".parse::<Span>().map(|s| s.to_string()), Ok("30m".into()));
        assert!("soon".parse::<Span>().is_err());
        assert!("-1s".parse::<Span>().is_err());
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!("25MiB".parse::<Size>(), Ok(Size(25 << 20)));
        assert_eq!(Size(25 << 20).to_string(), "25MiB");
        assert!("big".parse::<Size>().is_err());
    }
}
