//! Why a request or a body cannot be read.

/// Why a delivery cannot be taken or read. Messages are read after "failed to read the delivery".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A header that every GitHub delivery has is not there.
    #[error("there is no {0} header; GitHub sends one with every delivery")]
    MissingHeader(&'static str),
    /// A header's value has a form that GitHub never sends.
    #[error("the {name} header is not {wanted}")]
    BadHeader {
        /// The header.
        name: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
    /// The body is neither JSON nor a form.
    #[error(
        "the content type is not supported; choose application/json (or application/x-www-form-urlencoded) as \
         \"Content type\" in the webhook's settings"
    )]
    UnsupportedType,
    /// The body is not one complete JSON text.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// The body is JSON, but GitHub's deliveries are objects.
    #[error("the body is JSON but not an object, and every delivery of GitHub is one")]
    NotAnObject,
    /// The nesting is deeper than anything GitHub sends, and than a reader should follow.
    #[error("the body nests deeper than {0} levels, which no delivery of GitHub does")]
    TooDeep(usize),
    /// A form that does not hold exactly one payload.
    #[error(
        "the form has {0} `payload` fields and not one; choose application/json as \"Content type\" in the webhook's \
         settings"
    )]
    Form(usize),
    /// The event's name does not fit the body. GitHub signs the body only.
    #[error(
        "the delivery is called `{event}` but its body {why}; GitHub signs the body and not the event's name, so a \
         name that does not fit the body is not believed"
    )]
    Misnamed {
        /// What the delivery is called.
        event: String,
        /// What does not fit.
        why: String,
    },
    /// A defect of ours.
    #[error("reading it panicked; please report this delivery")]
    Panicked,
}

impl Error {
    /// The HTTP status that answers a request which fails like this.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnsupportedType => 415,
            _ => 400,
        }
    }
}
