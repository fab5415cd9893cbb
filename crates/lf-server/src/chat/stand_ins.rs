//! The models that may take the place of the one that was asked for.

use lf_core::project::Project;
use lf_core::turn::StandIn;
use lf_core::{Catalogue, Model, Principal, ToolSet};
use lf_models::Otherwise;
use serde_json::{Map, Value};

use super::asked::{parameters, text_formats};
use crate::app::App;
use crate::failover::Upstream;
use crate::quotas::can_pay;

/// Reasoning sealed by one Responses upstream is refused by any other.
const SEALED: &str = lf_dialects::openai_responses::RESPONSES_ONLY;

impl App {
    /// The models of these names, for a turn of `asked`. Each brings its own ways and its own parameters under those that
    /// were `said` with the request, and of the tools those that it may use itself.
    pub(crate) fn stand_ins(
        &self,
        (who, project, asked): (&Principal, &Project, &Model),
        names: &[String],
        tools_of: &dyn Fn(&Model) -> ToolSet,
        said: &Map<String, Value>,
    ) -> Vec<Upstream> {
        let mut stand_ins = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let reached = project.models.get(name).filter(|_| who.reaches_model(name));
            let Some(Ok(model)) =
                reached.filter(|model| model.as_ref().is_ok_and(|model| can_pay(who, model)))
            else {
                tracing::warn!(model = asked.name, fallback = name, "the fallback is not available");
                continue;
            };
            let last = at + 1 == names.len();
            let otherwise = if last { Otherwise::Nobody } else { Otherwise::Another };
            match lf_models::provider(model, &self.client, otherwise) {
                Ok(provider) => stand_ins.push(Upstream {
                    model: model.clone(),
                    provider,
                    stand_in: Some(StandIn {
                        model: model.name.clone(),
                        tools: tools_of(model),
                        parameters: parameters(model, said.clone()),
                        strategy: model.strategy,
                        price: model.price,
                        images: model.images,
                        text_formats: text_formats(model),
                        sealed: if model.base_url == asked.base_url {
                            Vec::new()
                        } else {
                            vec![SEALED.to_owned()]
                        },
                    }),
                }),
                Err(error) => {
                    tracing::warn!(model = asked.name, fallback = name, %error, "the fallback cannot be asked");
                }
            }
        }
        stand_ins
    }
}

/// What a request said itself, of the parameters that its turn began with: what the model's entry in the file adds to
/// every request is of that model alone.
pub(crate) fn said_of(model: &Model, turn: &Map<String, Value>) -> Map<String, Value> {
    let own = parameters(model, Map::new());
    let said = turn.iter().filter(|(key, value)| own.get(*key) != Some(value));
    said.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What of the tools at hand another model may use, too.
pub(super) fn permitted(catalogue: &Catalogue, model: &Model) -> Catalogue {
    let tools = catalogue.tools.iter().filter(|tool| may_use(model, &tool.id.server));
    Catalogue { tools: tools.cloned().collect(), ..Catalogue::default() }
}

/// Whether a model may use this server.
pub(crate) fn may_use(model: &Model, server: &str) -> bool {
    model.servers.iter().any(|name| **name == *server)
}
