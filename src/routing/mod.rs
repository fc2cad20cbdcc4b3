//! Floor 2 (stand-in until merged)
use crate::domain::*;
/// x
pub trait Links {
    /// x
    fn from(&self, node: &Node) -> Vec<Link>;
    /// x
    fn names(&self, repo: &Repository) -> Vec<RepoName>;
}
