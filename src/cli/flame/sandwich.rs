//! `prof flame --sandwich`.

use super::DrawArgs;
use crate::cli::output::Output;
use crate::cli::usage;
use crate::report::colors::Scheme;
use crate::report::flame::FlameOptions;
use crate::report::text::quoted;
use crate::report::{flame, json, sandwich as text, summary as view_summary};
use view::answer::SandwichBoxesAnswer;
use view::{SandwichBoxes, SandwichModel, View};

impl DrawArgs {
    /// Draws the callers and the callees of functions. The number of bytes written.
    pub(super) fn draw_sandwich(
        &self,
        view: &View<'_>,
        found: &SandwichModel,
        output: Output,
    ) -> anyhow::Result<u64> {
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
                let FlameOptions { order, min_width, .. } = options;
                let boxes = SandwichBoxes::new(view, sandwich, order, min_width);
                let answer = SandwichBoxesAnswer::new(view, sandwich, &boxes, functions);
                json::write(out, &answer)
            } else {
                flame::sandwich::write(out, view, sandwich, &options)
            }
        })
    }
}
