//! What a judgement met, in words.

/// One stage's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The stage.
    pub stage: &'static str,
    /// The entry that matched.
    pub entry: Option<u32>,
    /// What was found, and why it led on.
    pub why: String,
}

/// A packet's way, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<Step>);

impl Trace {
    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// Adds a step of the engine itself.
    pub fn say(&mut self, stage: &'static str, why: impl Into<String>) {
        self.0.push(Step { stage, entry: None, why: why.into() });
    }
}
