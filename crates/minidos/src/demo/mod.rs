//! The demo: several node processes compute kmeans on shared pages, and every message is accounted for.
//!
//! | file | what |
//! | --- | --- |
//! | `options` | what can be asked for |
//! | `children` | the node processes: started, listened to, always reaped |
//! | `supervisor` | the order of a run |
//! | `report` | what came out, and whether it is good |
//! | `table`, `json` | the report for people, and for programs |

mod children;
mod json;
mod options;
mod report;
mod scratch;
mod signals;
mod supervisor;
mod table;

pub use options::{Options, Place, Transport};
pub use report::{Report, Sizes};
pub use supervisor::{DemoError, Moment, Progress, run};
