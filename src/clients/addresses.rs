//! Which addresses are public: everything in IANA's special-purpose registries is not.
//!
//! <https://www.iana.org/assignments/iana-ipv4-special-registry> and `…/iana-ipv6-special-registry`; multicast besides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks as address and prefix length. Those that the registry calls globally reachable (AS112, AMT …) serve the
/// network and no webhooks, so they stand here as well.
const V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Blocks inside of 2000::/3, the only global unicast there is.
const V6: &[(Ipv6Addr, u32)] = &[
    // Protocol assignments: Teredo, benchmarking, ORCHID, drone ids …
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4: holds a v4 address, and is no more.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
const GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// NAT64's well-known prefix: what it leads to is the v4 address in its last 32 bits.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether anybody on the internet may be at this address, and nobody in the house.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !V4.iter().any(|(base, length)| in_v4(address, *base, *length)),
        IpAddr::V6(address) if in_v6(address, NAT64) => {
            let [.., a, b, c, d] = address.octets();
            is_public(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
        // A v4 address written as v6 is outside of 2000::/3, and refused whatever it is: no name server gives one.
        IpAddr::V6(address) => in_v6(address, GLOBAL) && !V6.iter().any(|block| in_v6(address, *block)),
    }
}

fn in_v4(address: Ipv4Addr, base: Ipv4Addr, length: u32) -> bool {
    (u32::from(address) ^ u32::from(base)) >> (32 - length) == 0
}

fn in_v6(address: Ipv6Addr, (base, length): (Ipv6Addr, u32)) -> bool {
    (u128::from(address) ^ u128::from(base)) >> (128 - length) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_every_block_are_refused_and_their_neighbours_taken() {
        for text in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.171",
            "192.0.2.1",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "192.175.48.1",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:1::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "2620:4f:8000::1",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().expect(text)), "{text} was taken for public");
        }
        for text in [
            "1.0.0.0",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "3fff:1000::1",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(text.parse().expect(text)), "{text} was taken for special");
        }
    }
}
