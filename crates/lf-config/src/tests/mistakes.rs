//! One file per mistake, and what a person is told.

mod access;
mod limits;
mod models;
mod policy;
mod references;
mod sandbox;
mod servers;
mod shape;
