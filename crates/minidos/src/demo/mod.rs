//! The demo: several node processes compute k-means on shared pages, and account for every message.
//!
//! | file | content |
//! | --- | --- |
//! | `options` | the options of a run |
//! | `children` | the node processes: starts them, reads their output, always reaps them |
//! | `supervisor` | the phases of a run |
//! | `report` | the results of a run, and its verdict |
//! | `scratch`, `signals` | the run's temporary directory; SIGINT and SIGTERM |
//! | `table`, `json` | the human-readable and the machine-readable report |

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
