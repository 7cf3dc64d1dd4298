//! Two stores, two commits, and a process that dies anywhere: one row per request, in both databases.

mod kills;
mod late;
mod program;
mod results;
mod server;
mod watched;
mod worker;
mod world;
