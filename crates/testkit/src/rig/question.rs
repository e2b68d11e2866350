//! A question for a neighbour's MAC address.

use crate::builder;
use crate::random::Random;
use crate::reference::{Neighbor, Policy};
use model::{Desired, MacAddr};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An ARP request or a neighbour solicitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where it comes in.
    pub port: String,
    /// The frame's source.
    pub mac: MacAddr,
    /// Who asks, as told inside; `None` looks for duplicates.
    pub sender: Option<IpAddr>,
    /// The address asked for.
    pub target: IpAddr,
    /// The frame.
    pub frame: Vec<u8>,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { port, mac, sender, target, .. } = self;
        match sender {
            Some(sender) => write!(f, "who has {target}, tell {sender}, in at {port} from {mac}"),
            None => write!(f, "does anybody have {target}, in at {port} from {mac}"),
        }
    }
}

impl Question {
    /// A question that some host of the desired state may ask.
    pub fn random(random: &mut Random, desired: &Desired) -> Question {
        let eni = random.pick(&desired.enis);
        let v4 = random.chance(50);
        let of = |eni: &model::Eni| eni.addresses.iter().find(|a| a.addr().is_ipv4() == v4).map(|a| a.addr());
        let other = random.pick(&desired.enis);
        let strange: [IpAddr; 3] = if v4 {
            [[10, 0, 0, 99].into(), [10, 0, 0, 7].into(), [10, 1, 1, 77].into()]
        } else {
            ["fd00::99", "fd00::7", "fd01:0:1::9"].map(|a| a.parse().expect("an address"))
        };
        let own = of(eni).unwrap_or(strange[0]);
        let target = if random.chance(60) { of(other).unwrap_or(strange[0]) } else { *random.pick(&strange) };
        let sender = match random.below(20) {
            0 => Some(strange[0]),
            1 => None,
            _ => Some(own),
        };
        let mac = if random.chance(95) { eni.mac_address } else { MacAddr([2, 9, 9, 9, 9, 9]) };
        Question::new(&eni.port, mac, sender, target)
    }

    /// The question of the host with this MAC.
    pub fn new(port: &str, mac: MacAddr, sender: Option<IpAddr>, target: IpAddr) -> Question {
        let frame = match (sender, target) {
            (Some(IpAddr::V6(sender)), IpAddr::V6(target)) => {
                builder::neighbor_solicitation(mac.0, sender, target)
            }
            (_, IpAddr::V6(target)) => builder::neighbor_solicitation(mac.0, Ipv6Addr::UNSPECIFIED, target),
            (Some(IpAddr::V4(sender)), IpAddr::V4(target)) => builder::arp_request(mac.0, sender, target),
            // RFC 5227 (2.1.1): a probe's sender address is zero.
            (_, IpAddr::V4(target)) => builder::arp_request(mac.0, [0, 0, 0, 0].into(), target),
        };
        Question { port: port.into(), mac, sender, target, frame }
    }

    /// The frame with which this MAC answers.
    pub fn answer(&self, mac: [u8; 6]) -> Vec<u8> {
        match (self.sender, self.target) {
            (Some(IpAddr::V4(sender)), IpAddr::V4(target)) => {
                builder::arp_reply(mac, target, self.mac.0, sender)
            }
            (Some(IpAddr::V6(sender)), IpAddr::V6(target)) => {
                builder::neighbor_advertisement(mac, target, self.mac.0, sender)
            }
            _ => Vec::new(),
        }
    }

    /// What the policy makes of it.
    pub fn judge(&self, policy: &Policy) -> Neighbor {
        policy.neighbor(&self.port, self.mac, (self.mac, self.sender), self.target)
    }
}
