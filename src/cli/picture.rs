//! File names of pictures.

use std::path::Path;

use super::{shell_word, usage};

/// A kind of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Boxes, by prof.
    Boxes,
    /// A call graph, by Graphviz.
    Graph,
}

/// Fails for the name of a file that prof does not draw.
///
/// # Errors
///
/// One line that says how to get it.
pub fn check_name(path: &Path, picture: Picture) -> anyhow::Result<()> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    let [shown, svg, dot] =
        [path.to_path_buf(), path.with_extension("svg"), path.with_extension("dot")]
            .map(|path| shell_word(&path.to_string_lossy()).into_owned());
    let way = match (extension.as_str(), picture) {
        ("html" | "htm", _) => format!("prof draws SVG, which browsers open: -o {svg}"),
        ("png" | "pdf" | "jpg" | "jpeg" | "gif" | "ps" | "eps", Picture::Graph) => {
            format!(
                "prof draws SVG, or writes DOT: -o {dot}, then dot -T{extension} {dot} -o {shown}"
            )
        }
        ("png" | "pdf" | "ps" | "eps", Picture::Boxes) => format!(
            "prof draws SVG: -o {svg}, then rsvg-convert -f {extension} {svg} -o {shown} \
             (librsvg2-bin)"
        ),
        ("jpg" | "jpeg" | "gif" | "webp" | "avif" | "tif" | "tiff" | "bmp", _) => {
            format!("prof draws SVG: -o {svg}; other programs convert it")
        }
        _ => return Ok(()),
    };
    Err(usage(format!("{}: {way}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pictures_are_refused_with_the_way_to_get_them() {
        let error =
            |name: &str, picture| check_name(Path::new(name), picture).unwrap_err().to_string();
        let png = error("a/x.png", Picture::Boxes);
        assert!(png.contains("rsvg-convert -f png a/x.svg -o a/x.png"), "{png}");
        let pdf = error("x.pdf", Picture::Graph);
        assert!(pdf.contains("-o x.dot, then dot -Tpdf x.dot -o x.pdf"), "{pdf}");
        assert!(error("x.HTML", Picture::Graph).contains("browsers open: -o x.svg"));
        assert!(error("x.webp", Picture::Boxes).contains("-o x.svg"));
        let pdf = error("a b.PDF", Picture::Graph);
        assert!(pdf.contains("-o 'a b.dot', then dot -Tpdf 'a b.dot' -o 'a b.PDF'"), "{pdf}");
        for name in ["x.svg", "x", "-", "x.txt", "png", "/dev/stdout"] {
            check_name(Path::new(name), Picture::Boxes).unwrap();
        }
    }
}
