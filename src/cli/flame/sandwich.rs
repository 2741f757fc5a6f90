//! `prof flame --sandwich`.

use super::DrawArgs;
use crate::cli::output::Output;
use crate::cli::usage;
use crate::report::answer::{self, OutputFormat};
use crate::report::colors::Scheme;
use crate::report::text::quoted;
use crate::report::{flame, sandwich as text, summary as view_summary};
use view::query::Query;
use view::{Answer, SandwichModel};

impl DrawArgs {
    /// Draws the callers and the callees of functions. The number of bytes written.
    pub(super) fn draw_sandwich(
        &self,
        answer: &Answer,
        found: &SandwichModel,
        query: &Query,
        output: Output,
    ) -> anyhow::Result<u64> {
        let view = &answer.view();
        if self.colors == Some(Scheme::State) {
            return Err(usage("--sandwich has no colours by state; choose other --colors"));
        }
        let SandwichModel { functions, sandwich } = found;
        anyhow::ensure!(
            sandwich.total > 0,
            "nothing to draw: no sample that passes the filters has {}",
            quoted(self.sandwich.as_deref().unwrap_or_default())
        );
        let title = format!("Sandwich of {}", text::names(view, functions));
        let subtitle = format!("{} · {}", view_summary::title(view), text::totals(view, sandwich));
        let options = self.options(title, subtitle, self.colors.unwrap_or_default());
        output.write_text(|out| {
            if self.json {
                answer::write(out, answer, query, OutputFormat::Json, None)
            } else {
                flame::sandwich::write(out, view, sandwich, &options)
            }
        })
    }
}
