//! The state machine.

pub mod command;
pub mod decision;
pub mod record;

pub use command::{
    Act, BeginEffect, ClaimCommand, Command, Facts, InDoubt, OperatorAct, OperatorCommand, OwnerCommand,
    StepResult,
};
pub use decision::{
    Answer, Change, Changes, Decision, EffectAnswer, OwnerAnswer, Present, Refusal, Replay, Swept, Verdict,
    Won, WonKind,
};
pub use record::{
    Applied, Blob, Body, DropReason, HoldReason, Outcome, OutcomeClass, Point, Record, Response, State, Step,
    StepProgress,
};
