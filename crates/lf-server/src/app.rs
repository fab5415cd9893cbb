//! The daemon's heart, without HTTP: projects, the session pool, the models' client, and what turns must remember.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lf_core::project::Disabled;
use lf_core::{Model, ModelError, Project};
use lf_mcp::{ProjectTools, SessionPool};
use lf_models::circuit::Circuits;
use thiserror::Error;

use crate::driver::Resumes;
use crate::responses::Responses;

/// Everything that requests share. One per process.
pub struct App {
    pub(crate) pool: SessionPool,
    pub(crate) client: lf_models::Client,
    pub(crate) resumes: Resumes,
    pub(crate) circuits: Arc<Circuits>,
    pub(crate) responses: Responses,
    projects: Projects,
    /// What the tool list of a model last looked like, so that a change is logged once.
    pub(crate) seen_tools: Mutex<HashMap<String, u64>>,
}

/// Reads a project's file: how is decided by the program, which knows the environment.
pub type Loader = Box<dyn Fn(&Path) -> Result<Project, String> + Send + Sync>;

/// What an [`App`] is made of.
pub struct Parts {
    /// The project the program was started in.
    pub project: Option<Project>,
    /// `$LF_DATA_DIR`; further projects are below `projects/<namespace>/<name>/`.
    pub data_dir: PathBuf,
    pub loader: Loader,
    pub pool: SessionPool,
    pub timeouts: lf_models::Timeouts,
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
    #[error("{message}")]
    BadRequest { message: String, param: Option<String> },
    #[error("MCP server `{server}` is required and not available: {reason}")]
    RequiredServerDown { server: String, reason: String },
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl App {
    /// # Errors
    /// When the HTTP client for models cannot be set up.
    pub fn new(parts: Parts) -> Result<Self, ModelError> {
        if let Some(project) = &parts.project {
            tracing::info!(target: "services.mcp_service", server_count = project.servers.len(), "MCPService initialized");
        }
        Ok(Self {
            pool: parts.pool,
            client: lf_models::Client::new(parts.timeouts)?,
            resumes: Resumes::new(),
            circuits: Arc::default(),
            responses: Responses::new(),
            projects: Projects {
                main: parts.project.map(Arc::new),
                data_dir: parts.data_dir,
                loader: parts.loader,
                loaded: Mutex::default(),
            },
            seen_tools: Mutex::default(),
        })
    }

    /// The project the program was started in.
    pub fn project(&self) -> Option<&Arc<Project>> {
        self.projects.main.as_ref()
    }

    pub fn data_dir(&self) -> &Path {
        &self.projects.data_dir
    }

    /// The servers of a project; nothing is started.
    pub fn servers_of(&self, project: &Project) -> ProjectTools {
        self.pool.tools(project.servers.iter().map(|(name, server)| (name.clone(), server.clone())))
    }

    pub fn pool(&self) -> &SessionPool {
        &self.pool
    }

    /// # Errors
    /// [`Refusal::UnknownProject`] and [`Refusal::BrokenProject`]
    pub fn find_project(&self, namespace: &str, name: &str) -> Result<Arc<Project>, Refusal> {
        self.projects.find(namespace, name)
    }

    /// The project and model that a name means: a model of `scope` (or else of the main project), or
    /// `namespace/project/model`.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such model, or it cannot be used.
    pub fn find_model(
        &self,
        scope: Option<&Arc<Project>>,
        name: Option<&str>,
    ) -> Result<(Arc<Project>, Arc<Model>), Refusal> {
        let unknown =
            |model: &str| Refusal::UnknownModel { model: model.to_owned(), known: self.model_names(scope) };
        let project = scope.or(self.projects.main.as_ref()).cloned();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let project = project.ok_or_else(|| unknown("(none named)"))?;
            let Some(default) = project.default_model.clone() else { return Err(unknown("(none named)")) };
            return self.model_of(project, &default, unknown);
        };
        if let Some(project) = project.filter(|project| project.models.contains_key(name)) {
            return self.model_of(project, name, unknown);
        }
        let parts: Vec<&str> = name.splitn(3, '/').collect();
        match (scope, &parts[..]) {
            (None, [namespace, project, model]) => {
                let found = self.projects.find(namespace, project);
                let project = found.map_err(|refusal| match refusal {
                    Refusal::UnknownProject(_) => unknown(name),
                    other => other,
                })?;
                self.model_of(project, model, unknown)
            }
            _ => Err(unknown(name)),
        }
    }

    fn model_of(
        &self,
        project: Arc<Project>,
        name: &str,
        unknown: impl Fn(&str) -> Refusal,
    ) -> Result<(Arc<Project>, Arc<Model>), Refusal> {
        match project.models.get(name) {
            Some(Ok(model)) => {
                let model = model.clone();
                Ok((project, model))
            }
            Some(Err(Disabled { reason })) => {
                Err(Refusal::DisabledModel { model: name.to_owned(), reason: reason.clone() })
            }
            None => Err(unknown(name)),
        }
    }

    /// The names a client may use: the scope's own, or the main project's and `namespace/project/model` of the others.
    pub fn model_names(&self, scope: Option<&Arc<Project>>) -> Vec<String> {
        let own = |project: &Arc<Project>| project.models.keys().cloned().collect::<Vec<_>>();
        if let Some(project) = scope {
            return own(project);
        }
        let mut names = self.projects.main.as_ref().map(own).unwrap_or_default();
        for project in self.projects.stored() {
            let prefix = format!("{}/{}", project.namespace, project.name);
            names.extend(project.models.keys().map(|model| format!("{prefix}/{model}")));
        }
        names
    }
}

/// The main project, and those below the data directory, read when asked for and again when their file changed.
struct Projects {
    main: Option<Arc<Project>>,
    data_dir: PathBuf,
    loader: Loader,
    loaded: Mutex<HashMap<PathBuf, (SystemTime, Arc<Project>)>>,
}

/// File names of a project, in the order they are tried.
const FILES: [&str; 4] = ["llamafarm.yaml", "llamafarm.yml", "llamafarm.toml", "llamafarm.json"];

impl Projects {
    fn find(&self, namespace: &str, name: &str) -> Result<Arc<Project>, Refusal> {
        if let Some(main) = self.main.as_ref().filter(|main| main.namespace == namespace && main.name == name)
        {
            return Ok(main.clone());
        }
        let full = format!("{namespace}/{name}");
        // names are checked before they become part of a path
        if !(is_name(namespace) && is_name(name)) {
            return Err(Refusal::UnknownProject(full));
        }
        let directory = self.data_dir.join("projects").join(namespace).join(name);
        self.read(&directory)
            .ok_or_else(|| Refusal::UnknownProject(full.clone()))?
            .map_err(|reason| Refusal::BrokenProject { project: full, reason })
    }

    fn read(&self, directory: &Path) -> Option<Result<Arc<Project>, String>> {
        let (path, changed) = FILES.iter().find_map(|file| {
            let path = directory.join(file);
            let changed = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok()?;
            Some((path, changed))
        })?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, project)) = loaded.get(&path).filter(|(seen, _)| *seen == changed) {
            return Some(Ok(project.clone()));
        }
        Some((self.loader)(&path).map(|mut project| {
            // a stored project is what its directory says, as every route names it
            let name = |directory: Option<&Path>| {
                directory.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
            };
            project.name = name(Some(directory)).unwrap_or(project.name);
            project.namespace = name(directory.parent()).unwrap_or(project.namespace);
            let project = Arc::new(project);
            loaded.insert(path, (changed, project.clone()));
            project
        }))
    }

    /// The projects below the data directory that can be read, by name.
    fn stored(&self) -> Vec<Arc<Project>> {
        let folders = |path: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> =
                entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            paths.sort();
            paths
        };
        folders(&self.data_dir.join("projects"))
            .iter()
            .flat_map(|namespace| folders(namespace))
            .filter_map(|directory| self.read(&directory)?.ok())
            .collect()
    }
}

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,62}`
fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}
