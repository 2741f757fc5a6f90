// What inferno's script lacks: a search field with a count, keys, the names of small boxes, both sides
// of a sandwich. Functions of the same names replace those of inferno, which calls them.

var boxes = [];
var selected = null;
var zoomed = null;
var found = [];
var bar = {};

// A box: its element and parts, its place in values, its row, its name and its details.
function box_at(g, index) {
    var rect = find_child(g, "rect");
    var title = find_child(g, "title").textContent;
    var end = title.lastIndexOf(" (");
    return {
        index: index, g: g, rect: rect, text: find_child(g, "text"),
        x: parseInt(rect.getAttribute("fg:x")), w: parseInt(rect.getAttribute("fg:w")),
        y: parseFloat(rect.getAttribute("y")), title: title,
        name: end < 0 ? title : title.slice(0, end), details: end < 0 ? "" : title.slice(end + 2, -1),
    };
}

// True if a box begins within a part of the width.
function inside(b, part) {
    return part.x <= b.x && b.x < part.x + part.w;
}

function box_of(g) {
    return boxes[g.getAttribute("data-index")];
}

var inferno_init = init;
init = function(evt) {
    boxes = Array.prototype.map.call(document.getElementById("frames").children, box_at);
    var ys = Array.from(new Set(boxes.map(function(b) { return b.y; })));
    var from_root = function(y) { return middle === null ? (inverted ? y : -y) : Math.abs(y - middle); };
    var levels = Array.from(new Set(ys.map(from_root))).sort(function(a, b) { return a - b; });
    boxes.forEach(function(b) {
        b.level = levels.indexOf(from_root(b.y));
        b.g.setAttribute("data-index", b.index);
        b.g.setAttribute("role", "treeitem");
        b.g.setAttribute("aria-level", b.level + 1);
        b.g.setAttribute("tabindex", "-1");
    });
    frames = document.getElementById("frames");
    frames.setAttribute("role", "tree");
    frames.setAttribute("aria-label", document.getElementById("title").textContent);
    svg = frames.ownerSVGElement;
    make_bar();
    inferno_init(evt);
    // inferno takes the first SVG of a page.
    svg = frames.ownerSVGElement;
    var root = boxes.reduce(function(a, b) { return b.level < a.level || (b.level == a.level && b.w > a.w) ? b : a; });
    root.g.setAttribute("tabindex", "0");
    fit_title();
    window.addEventListener("resize", fit_title);
};

// The title in the room that there is.
var full_title = null;
function fit_title() {
    var title = document.getElementById("title");
    full_title = full_title || title.textContent;
    title.textContent = full_title;
    var width = title.getComputedTextLength();
    var room = svg.getBoundingClientRect().width - 2 * xpad;
    if (width > room) title.textContent = shortened(full_title, Math.floor(full_title.length * room / width));
}

// The line with the selected box and the search, which stays in the window.
function make_bar() {
    var XHTML = "http://www.w3.org/1999/xhtml";
    var element = function(kind, attributes, parent) {
        var e = document.createElementNS(XHTML, kind);
        for (var key in attributes) e.setAttribute(key, attributes[key]);
        return (parent || bar.div).appendChild(e);
    };
    bar.place = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
    bar.div = document.createElementNS(XHTML, "div");
    bar.div.setAttribute("class", "bar");
    bar.details = element("span", { "class": "details", "title": "click: copy the name" });
    bar.name = element("span", {}, bar.details);
    bar.values = element("span", {}, bar.details);
    bar.copy = element("button", { "hidden": "", "title": "copy the name (c)" });
    bar.copy.textContent = "Copy name";
    bar.reset = element("button", { "hidden": "", "title": "show everything (Esc)" });
    bar.reset.textContent = "Reset zoom";
    bar.matched = element("span", { "class": "matched", "role": "status" });
    bar.input = element("input", {
        "type": "search", "placeholder": "Search (/)", "aria-label": "Search",
        "title": "regular expression; Enter: next, Shift+Enter: previous, Esc: end",
    });
    bar.place.appendChild(bar.div);
    bar.place.setAttribute("x", "0");
    bar.place.setAttribute("width", "100%");
    bar.place.setAttribute("height", "26");
    svg.appendChild(bar.place);
    svg.classList.add("scripted");
    bar.input.addEventListener("input", function() { search(bar.input.value); });
    bar.copy.addEventListener("click", copy_name);
    bar.details.addEventListener("click", copy_name);
    bar.reset.addEventListener("click", reset_zoom);
    ["scroll", "resize"].forEach(function(kind) { window.addEventListener(kind, place_bar); });
    place_bar();
}

function place_bar() {
    var top = svg.getBoundingClientRect().top;
    var height = parseFloat(svg.getAttribute("height"));
    var y = inverted || middle !== null
        ? Math.max(bar_top, -top) : Math.min(height - 26, window.innerHeight - top - 26);
    bar.place.setAttribute("y", y);
}

function say(b) {
    bar.name.textContent = b ? b.name : "";
    bar.values.textContent = b ? "  " + b.details : "";
    bar.copy.hidden = !selected;
}

// A name without the arguments of templates in it: `short` of `src/report/style.rs`.
var OPERATORS = ["<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<"];
function without_arguments(name) {
    var out = "", at = 0;
    while (at < name.length) {
        var rest = name.slice(at);
        var operator = operator_at(out, rest);
        var length = 0;
        if (operator) {
            out += operator;
            at += operator.length;
        } else if (rest[0] == "<" && takes_arguments(out) && (length = bracketed(rest))) {
            // `f::<T>`, `operator<< <T>`
            out = out.replace(/::$/, "").trimEnd();
            at += length;
        } else {
            out += rest[0];
            at++;
        }
    }
    return out;
}

function operator_at(before, rest) {
    if (!/(^|[^\p{L}\p{N}_])operator$/u.test(before)) return "";
    return OPERATORS.concat(["()", ">"]).find(function(o) { return rest.startsWith(o); }) || "";
}

function takes_arguments(before) {
    var conversion = /(^|[^\p{L}\p{N}_])operator [^(),]*[*&]$/u;
    before = before.replace(/::$/, "");
    return /[\p{L}\p{N}_)\]}~$]$/u.test(before) || conversion.test(before)
        || OPERATORS.some(function(o) { return before.trimEnd().endsWith("operator" + o); });
}

// Length of the text in angle brackets at the start; 0 if they are not closed.
function bracketed(text) {
    var depth = 0;
    for (var i = 0; i < text.length; i++) {
        if (text[i] == "<") depth++;
        else if (text[i] == ">" && text[i - 1] != "-") depth--;
        if (depth == 0) return i + 1;
    }
    return 0;
}

// At most `room` characters of a name: `label` of `src/report/shorten.rs`.
function shortened(name, room) {
    if (name.length <= room) return name;
    name = without_arguments(name);
    // Characters, not halves of them.
    var all = Array.from(name);
    if (all.length <= room) return name;
    if (room < 3) return "";
    if (room < 6) return all.slice(0, room).join("");
    if (room < 12) return all.slice(0, room - 1).join("") + "\u2026";
    var first = Math.floor((room - 1) / 2);
    return all.slice(0, first).join("") + "\u2026" + all.slice(all.length - (room - 1 - first)).join("");
}

update_text_for_elements = function(elements) {
    var width = frames.attributes.width.value;
    var character = known_font_width || fontsize * fontwidth;
    for (var i = 0; i < elements.length; i++) {
        var b = box_of(elements[i]);
        var room = Math.floor((parseFloat(b.rect.getAttribute("width")) * width / 100 - 4) / character);
        var label = shortened(b.name, room);
        if (label) b.text.setAttribute("x", format_percent(parseFloat(b.rect.getAttribute("x")) + 300 / width));
        if (b.text.textContent != label) b.text.textContent = label;
    }
};

update_text = function(e) {
    update_text_for_elements([e]);
};

// Zoom. A box is shown where it is part of the box that is zoomed into, or leads to it; on the other
// side of a sandwich, where it is part of the same function.
zoom = function(node) {
    if (node) show_part(box_of(node));
};

unzoom = function() {
    show_part(null);
};

function show_part(z) {
    zoomed = z;
    bar.reset.hidden = !z;
    var shown = [];
    var whole = { x: 0, w: total_samples };
    var side = function(b) { return middle === null ? 1 : Math.sign(b.y - middle); };
    var root = z && middle !== null
        ? boxes.find(function(b) { return b.y == middle && inside(z, b); }) || whole : whole;
    boxes.forEach(function(b) {
        var part = !z ? whole : side(b) * side(z) < 0 ? root : z;
        var leads = part === z && z && b.level < z.level;
        var visible = leads ? inside(z, b) && z.x + z.w <= b.x + b.w : inside(b, part);
        b.g.classList.toggle("hide", !visible);
        b.g.classList.toggle("parent", Boolean(leads && visible));
        if (!visible) return;
        b.rect.setAttribute("x", format_percent(leads ? 0 : 100 * (b.x - part.x) / part.w));
        b.rect.setAttribute("width", format_percent(leads ? 100 : 100 * b.w / part.w));
        shown.push(b.g);
    });
    update_text_for_elements(shown);
    if (found.length) mark_found();
}

function reset_zoom() {
    unzoom();
    set_params({ x: null, y: null });
}

// The address, which may be that of another file, or no expression of numbers at all.
get_params = function() {
    var params = {};
    new URLSearchParams(window.location.search).forEach(function(value, key) { params[key] = value; });
    return params;
};

function set_params(changes) {
    var params = get_params();
    for (var key in changes) {
        if (changes[key] === null) delete params[key];
        else params[key] = changes[key];
    }
    // A page within another one may have no address.
    try { history.replaceState(null, null, parse_params(params)); } catch (e) { return; }
}

var inferno_find_group = find_group;
find_group = function(node) {
    return node ? inferno_find_group(node) : undefined;
};

// Search.
search_prompt = function() {
    bar.input.focus();
    bar.input.select();
};

reset_search = function() {
    bar.input.value = "";
    search("");
};

// A regular expression, or the text if it is none. Lowercase letters match uppercase ones, too.
function expression(term) {
    var letters = term.replace(/\\./g, "");
    var flags = letters == letters.toLowerCase() ? "i" : "";
    try {
        return new RegExp(term, flags);
    } catch (e) {
        return new RegExp(term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), flags);
    }
}

search = function(term) {
    if (bar.input.value != term) bar.input.value = term;
    var wanted = term ? expression(term) : null;
    found = wanted ? boxes.filter(function(b) {
        var binary = b.details.split(", ").pop();
        var is_value = /%$|^(self|before|change) |^\u00d7/.test(binary);
        return wanted.test(b.name) || (!is_value && wanted.test(binary));
    }) : [];
    found.sort(function(a, b) { return a.y - b.y || a.x - b.x; });
    boxes.forEach(function(b) { b.g.classList.remove("found"); });
    found.forEach(function(b) { b.g.classList.add("found"); });
    searching = found.length ? 1 : 0;
    set_params({ s: term || null });
    mark_found();
};

// The number of boxes found, the place of the selected one, and their share of what is shown: boxes on
// a box that was found add nothing.
function mark_found() {
    if (!bar.input.value) {
        bar.matched.textContent = "";
        return;
    }
    var at = found.indexOf(selected);
    var text = (at < 0 ? "" : (at + 1) + " of ") + found.length + (found.length == 1 && at < 0 ? " box" : " boxes");
    if (middle === null && found.length) {
        var part = zoomed || { x: 0, w: total_samples };
        var sum = 0, end = part.x;
        found.slice().sort(function(a, b) { return a.x - b.x || b.w - a.w; }).forEach(function(b) {
            var from = Math.max(b.x, end), to = Math.min(b.x + b.w, part.x + part.w);
            if (to > from) {
                sum += to - from;
                end = to;
            }
        });
        var share = 100 * sum / part.w;
        text += ", " + (share == 100 ? share : share.toFixed(1)) + "%";
    }
    bar.matched.textContent = text;
}

function next_found(step) {
    if (!found.length) return;
    var at = found.indexOf(selected);
    at = at < 0 ? (step > 0 ? 0 : found.length - 1) : (at + step + found.length) % found.length;
    select(found[at]);
    mark_found();
}

// The selected box.
function select(b) {
    if (selected) {
        selected.g.classList.remove("selected");
        selected.g.removeAttribute("aria-selected");
        selected.g.setAttribute("tabindex", "-1");
    }
    selected = b;
    if (b.g.classList.contains("hide")) reset_zoom();
    b.g.classList.add("selected");
    b.g.setAttribute("aria-selected", "true");
    boxes.forEach(function(other) {
        if (other !== b && other.g.getAttribute("tabindex") == "0") other.g.setAttribute("tabindex", "-1");
    });
    b.g.setAttribute("tabindex", "0");
    var place = b.rect.getBoundingClientRect();
    if (place.top < 40) window.scrollBy(0, place.top - window.innerHeight / 3);
    if (place.bottom > window.innerHeight - 40) window.scrollBy(0, place.bottom - window.innerHeight * 2 / 3);
    say(b);
    if (found.length) mark_found();
}

function copy_name() {
    if (!selected) return;
    var answer = function(text) {
        bar.copy.textContent = text;
        setTimeout(function() { bar.copy.textContent = "Copy name"; }, 2000);
    };
    // Where a page may not write to the clipboard, its text is selected at least.
    var refused = function() {
        window.getSelection().selectAllChildren(bar.details.firstChild);
        answer("Press Ctrl+C");
    };
    if (!navigator.clipboard) return refused();
    navigator.clipboard.writeText(selected.name).then(function() { answer("Copied"); }, refused);
}

// The box in a direction: towards the roots, away from them, or beside it in its row.
function neighbour(b, key) {
    var visible = boxes.filter(function(o) { return !o.g.classList.contains("hide"); });
    if (key == "ArrowLeft" || key == "ArrowRight") {
        var row = visible.filter(function(o) { return o.y == b.y; }).sort(function(a, c) { return a.x - c.x; });
        return row[row.indexOf(b) + (key == "ArrowLeft" ? -1 : 1)];
    }
    var down = key == "ArrowDown";
    var rows = visible.filter(function(o) {
        return (down ? o.y > b.y : o.y < b.y) && (inside(o, b) || inside(b, o));
    });
    rows.sort(function(a, c) { return (down ? a.y - c.y : c.y - a.y) || c.w - a.w; });
    return rows[0];
}

window.addEventListener("mouseover", function(e) {
    var g = find_group(e.target);
    if (g) say(box_of(g));
});
window.addEventListener("mouseout", function(e) {
    if (find_group(e.target)) say(selected);
});
window.addEventListener("click", function(e) {
    var g = find_group(e.target);
    if (g) select(box_of(g));
});
document.addEventListener("focusin", function(e) {
    var g = e.target.parentElement && find_group(e.target);
    if (g && box_of(g) !== selected) select(box_of(g));
});
window.addEventListener("keydown", function(e) {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    var in_field = e.target === bar.input;
    // Keys for other fields of a page that has the drawing in it.
    if (!in_field && (e.target.isContentEditable || /^(input|textarea|select)$/i.test(e.target.nodeName))) return;
    if (e.key == "Escape") {
        if (bar.input.value) reset_search();
        else if (zoomed) reset_zoom();
        if (in_field) bar.input.blur();
    } else if (in_field) {
        if (e.key == "Enter") next_found(e.shiftKey ? -1 : 1);
        return;
    } else if (e.key == "/") {
        search_prompt();
    } else if (e.key == "n" || e.key == "N") {
        next_found(e.key == "n" ? 1 : -1);
    } else if (e.key == "c") {
        copy_name();
    } else if (e.key.startsWith("Arrow")) {
        var first = boxes.find(function(b) { return b.g.getAttribute("tabindex") == "0"; });
        var next = selected ? neighbour(selected, e.key) : first;
        if (!next) return;
        select(next);
        next.g.focus({ preventScroll: true });
    } else if (e.key == "Enter" && selected && e.target.localName != "button") {
        selected.g.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    } else {
        return;
    }
    e.preventDefault();
});
