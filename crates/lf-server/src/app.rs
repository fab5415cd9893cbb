//! The daemon's heart, without HTTP: projects, the session pool, the models' client, and what turns must remember.

mod approvals;
pub(crate) mod disk;
mod editing;
mod generation;
mod projects;
mod reader;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use lf_core::project::Disabled;
use lf_core::quota::OverQuota;
use lf_core::{Model, ModelError, Principal, Project, Scope};
use lf_dialects::openai_chat::RequestError;
use lf_mcp::{ProjectTools, ServerReport, SessionPool};
use lf_models::Egress;
use lf_models::circuit::Circuits;
use lf_store::Store;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::access::Access;
pub use crate::app::approvals::{Command, Pending, storage_of};
pub(crate) use crate::app::editing::diagnostic;
use crate::app::editing::{Commands, Edit};
pub use crate::app::editing::{EditRefusal, StoredProject, Wanted};
pub use crate::app::generation::{Broken, ConfigStatus, Generation, Opened, RefusedEdit};
pub(crate) use crate::app::projects::Projects;
pub(crate) use crate::app::reader::{Key, Look, Reader};
use crate::approvals::CallApprovals;
use crate::audit::Audit;
use crate::authority::Grants;
use crate::memory::{Memory, Resumes};
use crate::quotas::Quotas;
use crate::responses::Making;
use crate::results::Results;
use crate::rules::{Active, HeldBack};

/// A model that may ask this daemon may ask itself: each level is a turn that waits for the next.
const NESTED: usize = 16;

/// Everything that requests share. One per process.
pub struct App {
    pub(crate) pool: SessionPool,
    pub(crate) client: lf_models::Client,
    pub(crate) resumes: Resumes,
    pub(crate) results: Results,
    pub(crate) quotas: Quotas,
    pub(crate) circuits: Arc<Circuits>,
    pub(crate) making: Making,
    /// Who may use the daemon.
    pub(crate) access: Arc<Access>,
    /// Where it listens, once it does.
    pub(crate) address: OnceLock<SocketAddr>,
    /// On whose behalf models ask this daemon itself.
    pub(crate) grants: Grants,
    /// What was run, refused, decided and changed.
    pub(crate) audit: Arc<Audit>,
    /// Calls that a person has to approve.
    pub(crate) approvals: Arc<CallApprovals>,
    /// Or why there is none.
    pub(crate) memory: Result<Arc<Memory>, String>,
    /// Where every turn is recorded.
    pub(crate) recordings: Option<PathBuf>,
    /// Turns that models of this daemon ask it for at the same time.
    pub(crate) nested: Semaphore,
    projects: Projects,
    /// What the tool list of a model last looked like, so that a change is logged once.
    pub(crate) seen_tools: Mutex<HashMap<String, u64>>,
    pub(crate) held_back: HeldBack,
}

/// Reads a project's file: how is decided by the program, which knows the environment. It may block.
pub type Loader = Box<dyn Fn(&Path) -> Result<Opened, Broken> + Send + Sync>;

/// What an [`App`] is made of.
pub struct Parts {
    /// The project the program was started in. A daemon reads its file again when it changes.
    pub project: Option<Opened>,
    /// `$LF_DATA_DIR`; further projects are below `projects/<namespace>/<name>/`.
    pub data_dir: PathBuf,
    pub loader: Loader,
    pub pool: SessionPool,
    pub timeouts: lf_models::Timeouts,
    /// The way to model APIs; with what the operator says of projects and hosts.
    pub egress: Egress,
    /// Where conversations are kept, or why they are not.
    pub store: Result<Store, String>,
    /// The directory in which every turn is recorded, as a cassette that is named after it.
    pub recordings: Option<PathBuf>,
    pub audit: Arc<Audit>,
}

/// Why a request cannot become a turn: one variant per status.
#[derive(Debug, Clone, Error)]
pub enum Refusal {
    #[error("project `{0}` does not exist")]
    UnknownProject(String),
    #[error("project `{project}` cannot be used: {reason}")]
    BrokenProject { project: String, reason: String },
    #[error("model `{model}` does not exist; the models are: {}", list(known))]
    UnknownModel { model: String, known: Vec<String> },
    #[error("model `{model}` cannot be used: {reason}")]
    DisabledModel { model: String, reason: String },
    #[error("MCP server `{server}` does not exist; the servers are: {}", list(known))]
    UnknownServer { server: String, known: Vec<String> },
    #[error("{message}")]
    BadRequest { message: String, param: Option<String> },
    #[error("MCP server `{server}` is required and not available: {reason}")]
    RequiredServerDown { server: String, reason: String },
    /// What is said cannot be kept.
    #[error("conversations cannot be kept now: {reason}")]
    NoMemory { reason: String },
    /// There is no room for what is said.
    #[error("conversations cannot be kept now: {reason}")]
    NoRoom { reason: String },
    #[error("there is no conversation `{0}`")]
    UnknownConversation(String),
    /// Whoever asks may not ask that.
    #[error("{0}")]
    Lacking(String),
    /// The caller has used what it may use.
    #[error("{0}")]
    OverQuota(OverQuota),
    /// More wants to be said at the same time than can be waited for.
    #[error("{0}")]
    Busy(String),
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        let RequestError { param, message, hint, .. } = error;
        let message = hint.map_or_else(|| message.clone(), |hint| format!("{message}; {hint}"));
        Self::BadRequest { message, param }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl App {
    /// # Errors
    /// When the HTTP client for models cannot be set up.
    pub fn new(parts: Parts) -> Result<Self, ModelError> {
        if let Some(Opened { project, .. }) = &parts.project {
            tracing::info!(target: "services.mcp_service", server_count = project.servers.len(), "MCPService initialized");
        }
        let access = Arc::new(Access::new(&parts.data_dir));
        let projects = Projects::new(
            parts.project,
            parts.data_dir,
            parts.loader,
            parts.pool.clone(),
            parts.egress.operator.clone(),
            parts.audit.clone(),
        );
        let resumes = Resumes::new(parts.store.as_ref().ok().cloned());
        let memory = parts.store.map(|store| Arc::new(Memory::new(store)));
        Ok(Self {
            pool: parts.pool,
            client: lf_models::Client::over(parts.egress, parts.timeouts)?,
            resumes,
            results: Results::default(),
            quotas: Quotas::new(memory.as_ref().ok().cloned()),
            circuits: Arc::default(),
            making: Making::default(),
            access,
            audit: parts.audit,
            address: OnceLock::new(),
            grants: Grants::default(),
            approvals: Arc::new(CallApprovals::new()),
            memory,
            recordings: parts.recordings,
            nested: Semaphore::new(NESTED),
            projects,
            seen_tools: Mutex::default(),
            held_back: HeldBack::default(),
        })
    }

    /// The project the program was started in, as it is now: whoever looks twice may see two generations of it.
    pub fn project(&self) -> Option<Arc<Project>> {
        self.projects.main()
    }

    /// Which generation of each project is active, and what was refused.
    pub fn config_status(&self) -> Vec<ConfigStatus> {
        self.projects.reader().status()
    }

    /// Of the projects that whoever asks reaches.
    pub(crate) fn config_status_for(&self, who: &Principal) -> Vec<ConfigStatus> {
        let mut status = self.config_status();
        status.retain(|one| {
            let project = &one.active.project;
            who.reaches_project(&project.namespace, &project.name)
        });
        status
    }

    pub(crate) fn projects(&self) -> &Projects {
        &self.projects
    }

    /// This project as it is at each look, without reading anything, whatever it is called by then.
    pub(crate) fn active(&self, project: &Project) -> Active {
        let reader = self.projects.reader().clone();
        let key = reader.key_of(&project.namespace, &project.name);
        Arc::new(move || reader.current(key.as_ref()?))
    }

    pub fn data_dir(&self) -> &Path {
        self.projects.data_dir()
    }

    /// The servers of a project; nothing is started.
    pub fn servers_of(&self, project: &Project) -> ProjectTools {
        let servers = project.servers.iter().map(|(name, server)| (name.clone(), server.clone()));
        self.pool.tools(servers).pinned(project.pins.clone())
    }

    /// What is known of those that whoever asks reaches.
    pub(crate) fn reports_for(&self, who: &Principal, project: &Project) -> Vec<ServerReport> {
        let reports = self.servers_of(project).reports().into_iter();
        reports.filter_map(|report| narrowed(who, report)).collect()
    }

    /// Who may use the daemon.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }

    pub fn pool(&self) -> &SessionPool {
        &self.pool
    }

    /// # Errors
    /// [`Refusal::UnknownProject`] and [`Refusal::BrokenProject`]
    pub async fn find_project(
        &self,
        who: &Principal,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Project>, Refusal> {
        if !who.reaches_project(namespace, name) {
            return Err(Refusal::UnknownProject(format!("{namespace}/{name}")));
        }
        self.projects.find(namespace, name).await
    }

    /// The project the program was started in, where whoever asks reaches it.
    pub(crate) fn main_for(&self, who: &Principal) -> Option<Arc<Project>> {
        self.projects.main().filter(|main| who.reaches_project(&main.namespace, &main.name))
    }

    /// The projects of one namespace, or of all, with the one that the program was started in.
    ///
    /// # Errors
    /// When the files cannot be looked at in time.
    pub async fn list_projects(
        &self,
        who: &Principal,
        namespace: Option<String>,
    ) -> Result<Vec<StoredProject>, EditRefusal> {
        let mut found = self.projects.edit(move |reader| Ok(reader.list(namespace.as_deref()))).await?;
        found.retain(|project| who.reaches_project(&project.namespace, &project.name));
        Ok(found)
    }

    /// # Errors
    /// [`EditRefusal::NotFound`], and when its file cannot be read.
    pub async fn show_project(
        &self,
        who: &Principal,
        namespace: String,
        name: String,
    ) -> Result<StoredProject, EditRefusal> {
        known(who, &namespace, &name)?;
        self.projects.edit(move |reader| reader.show(&namespace, &name)).await
    }

    /// A new project: the one of `lf init`, or what is given.
    ///
    /// # Errors
    /// [`EditRefusal`]
    pub async fn create_project(
        &self,
        who: &Principal,
        namespace: String,
        name: String,
        config: Option<Wanted>,
    ) -> Result<StoredProject, EditRefusal> {
        if !who.reaches_project(&namespace, &name) {
            let what = format!("the key `{}` does not reach `{namespace}/{name}`", who.name);
            return Err(EditRefusal::Forbidden(what));
        }
        let commands = commands(who);
        let edit = Edit::new(who, "created", (&namespace, &name));
        let create = move |reader: &Reader| reader.create(&namespace, &name, config, commands);
        self.projects.edit(move |reader| reader.on_record(edit, create)).await
    }

    /// Changes a project where it differs from what is given. `revision`: of the file that the caller has seen.
    ///
    /// # Errors
    /// [`EditRefusal`]
    pub async fn replace_project(
        &self,
        who: &Principal,
        namespace: String,
        name: String,
        wanted: Wanted,
        revision: Option<String>,
    ) -> Result<StoredProject, EditRefusal> {
        known(who, &namespace, &name)?;
        let commands = commands(who);
        let edit = Edit::new(who, "changed", (&namespace, &name));
        let replace =
            move |reader: &Reader| reader.replace(&namespace, &name, wanted, revision.as_deref(), commands);
        self.projects.edit(move |reader| reader.on_record(edit, replace)).await
    }

    /// Moves a project to `$LF_DATA_DIR/trash`, and ends its sessions.
    ///
    /// # Errors
    /// [`EditRefusal`]
    pub async fn remove_project(
        &self,
        who: &Principal,
        namespace: String,
        name: String,
    ) -> Result<(), EditRefusal> {
        known(who, &namespace, &name)?;
        let edit = Edit::new(who, "removed", (&namespace, &name));
        let remove = move |reader: &Reader| reader.remove(&namespace, &name);
        self.projects.edit(move |reader| reader.on_record(edit, remove)).await
    }

    /// What of a project waits for an approval: commands, and what it takes out of the environment.
    ///
    /// # Errors
    /// [`EditRefusal::NotFound`], and when files cannot be read.
    pub async fn pending(&self, namespace: String, name: String) -> Result<Pending, EditRefusal> {
        self.projects.edit(move |reader| reader.pending(&namespace, &name)).await
    }

    /// Approves this, as it was shown. Only for a person at this machine.
    ///
    /// # Errors
    /// When the approvals cannot be written.
    pub async fn approve(
        &self,
        namespace: String,
        name: String,
        pending: Pending,
    ) -> Result<(), EditRefusal> {
        let edit = Edit::new(&Principal::owner(), "approved", (&namespace, &name));
        let approve = move |reader: &Reader| reader.approve(&namespace, &name, &pending);
        self.projects.edit(move |reader| reader.on_record(edit, approve)).await
    }

    /// The project and model that a name means: a model of `scope` (or else of the main project), or
    /// `namespace/project/model`.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such model, or it cannot be used.
    pub async fn find_model(
        &self,
        who: &Principal,
        scope: Option<&Arc<Project>>,
        name: Option<&str>,
    ) -> Result<(Arc<Project>, Arc<Model>), Refusal> {
        let name = name.filter(|name| !name.is_empty());
        let found = self.look_up(who, scope, name).await?;
        let found = found.filter(|(_, model)| who.reaches_model(model)).and_then(|(project, model)| {
            let entry = project.models.get(&model)?.clone();
            Some((project, model, entry))
        });
        match found {
            Some((project, _, Ok(model))) => Ok((project, model)),
            Some((_, model, Err(Disabled { reason }))) => Err(Refusal::DisabledModel { model, reason }),
            None => Err(Refusal::UnknownModel {
                model: name.unwrap_or("(none named)").to_owned(),
                known: self.model_names(who, scope).await,
            }),
        }
    }

    /// Where a model is, and its name there.
    async fn look_up(
        &self,
        who: &Principal,
        scope: Option<&Arc<Project>>,
        name: Option<&str>,
    ) -> Result<Option<(Arc<Project>, String)>, Refusal> {
        let project = scope.cloned().or_else(|| self.main_for(who));
        let Some(name) = name else {
            let default = |project: Arc<Project>| {
                let default = project.default_model.clone()?;
                Some((project, default))
            };
            return Ok(project.and_then(default));
        };
        if let Some(project) = project.filter(|project| project.models.contains_key(name)) {
            return Ok(Some((project, name.to_owned())));
        }
        let parts: Vec<&str> = name.splitn(3, '/').collect();
        let (None, [namespace, project, model]) = (scope, &parts[..]) else { return Ok(None) };
        match self.find_project(who, namespace, project).await {
            Ok(project) => Ok(Some((project, (*model).to_owned()))),
            Err(Refusal::UnknownProject(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The names a client may use: the scope's own, or the main project's and `namespace/project/model` of the others.
    pub async fn model_names(&self, who: &Principal, scope: Option<&Arc<Project>>) -> Vec<String> {
        let reached = |project: &Arc<Project>| -> Vec<String> {
            project.models.keys().filter(|model| who.reaches_model(model)).cloned().collect()
        };
        if let Some(project) = scope {
            return reached(project);
        }
        let mut names = self.main_for(who).as_ref().map(reached).unwrap_or_default();
        for project in self.projects.stored().await {
            if who.reaches_project(&project.namespace, &project.name) {
                let prefix = format!("{}/{}", project.namespace, project.name);
                names.extend(reached(&project).into_iter().map(|model| format!("{prefix}/{model}")));
            }
        }
        names
    }
}

/// Of a server that is reached, what is: some of its tools may not be.
pub(crate) fn narrowed(who: &Principal, mut report: ServerReport) -> Option<ServerReport> {
    report.held.retain(|(tool, _)| who.reaches_tool(tool));
    who.reaches_server(&report.name).then_some(report)
}

/// A project that is not reached is not there.
fn known(who: &Principal, namespace: &str, name: &str) -> Result<(), EditRefusal> {
    match who.reaches_project(namespace, name) {
        true => Ok(()),
        false => Err(EditRefusal::NotFound(format!("{namespace}/{name}"))),
    }
}

fn commands(who: &Principal) -> Commands {
    if who.has(Scope::ConfigExec) { Commands::Wait } else { Commands::Refused }
}
