//! Which secrets go where: what the operator says counts, and not what a project file asks for.

mod canaries;
mod granted;
mod hidden;
mod kept;
mod passed_on;
