//! Floor 0: the nouns of the glossary and their legal states. No I/O, no async, no clock.

mod chain;
mod decision;
mod delivery;
mod event;
mod link;
mod notice;
mod occurrence;
mod principal;
mod secret;
mod session;
mod subscription;
mod turn;
mod units;
mod watch;
mod work_item;

pub use chain::chain;
pub use decision::{Assignment, Decision, Outcome};
pub use delivery::{Delivery, DeliverySeq, Receipt, Source};
pub use event::{Association, Author, Event, Fact, GITHUB_GAP, Nature, Person, Repository, Subject, SubjectKind};
pub use link::{Link, LinkKind, Node};
pub use notice::{Notice, NoticeId, NoticeState};
pub use occurrence::{Cursor, Occurrence, Place, Placed};
pub use principal::{Access, Principal};
pub use secret::Secret;
pub use session::{Attention, Session, SessionKey, SessionStatus};
pub use subscription::{Arguments, Reader, Subscription, SubscriptionId, SubscriptionState};
pub use turn::{Failure, FailureKind, Turn, TurnId, TurnOutcome, TurnState, Usage};
pub use units::{Size, Span};
pub use watch::{Condition, EventOffer, Mode, Watch, WatchId, WatchState};
pub use work_item::{ParseError, RepoName, Target, WorkItem};
