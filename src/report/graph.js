// Moves and scales the graph in the window: with the mouse and its wheel, arrows, + and -; 0 shows all
// of it, Home the root with the largest value, End the function with the largest self value; / searches.

"use strict";
// Scales: that of the smallest text that is read easily, and the limits. Height of the line above.
var LEGIBLE = 1.25, LEAST = 0.02, MOST = 20, BAR = 26;
var graph, all, nodes;
var scale = 1, x = 0, y = 0;
// What the window shows: all of the graph, its roots, or what the reader has chosen.
var shown = "chosen";
var bar = {}, found = [], current = -1;

function place() {
    graph.setAttribute("transform", "translate(" + x + " " + y + ") scale(" + scale + ")");
}

// Room for the graph, below the line with the title.
function room() {
    return { width: window.innerWidth, height: Math.max(window.innerHeight - BAR, 1) };
}

// A place where the middle of `box` is at a part of the window's height, or the end of the graph at that
// of the window.
function center(box, wanted, part) {
    var at = function(window_size, place, middle, all_from, all_size) {
        var wanted_place = place * window_size - middle * wanted;
        var first = -all_from * wanted, last = window_size - (all_from + all_size) * wanted;
        if (last > first) return (first + last) / 2;
        return Math.min(first, Math.max(last, wanted_place));
    };
    x = at(room().width, 0.5, box.x + box.width / 2, all.x, all.width);
    y = BAR + at(room().height, part || 0.5, box.y + box.height / 2, all.y, all.height);
    scale = wanted;
    place();
}

function fitting() {
    return Math.min(room().width / all.width, room().height / all.height, 2 * LEGIBLE);
}

// The functions: the legend is none.
function functions() {
    return Array.from(document.querySelectorAll(".node")).filter(function(g) {
        return g.querySelector("text") && g.querySelector("title").textContent != "L";
    }).map(function(g) {
        var link = g.querySelector("a"), text = g.textContent;
        var tooltip = link && link.getAttribute("xlink:title") || text;
        // The last share is that of the total.
        var shares = text.match(/-?[\d.]+(?=%\))/g) || ["0"];
        return {
            g: g, id: g.querySelector("title").textContent,
            name: tooltip.replace(/ \([^(]*\)$/, ""), total: Math.abs(parseFloat(shares[shares.length - 1])),
            // Larger text stands for a larger value.
            own: parseFloat(g.querySelector("text").getAttribute("font-size")),
        };
    });
}

function largest(of, value) {
    return of.reduce(function(a, b) { return value(b) > value(a) ? b : a; });
}

// The function without callers that has the largest total; of a graph without such functions, any.
function root() {
    var called = new Set();
    document.querySelectorAll(".edge > title").forEach(function(title) {
        var ends = title.textContent.split("->");
        if (ends[0] != ends[1]) called.add(ends[1]);
    });
    var roots = nodes.filter(function(node) { return !called.has(node.id); });
    return largest(roots.length ? roots : nodes, function(node) { return node.total; });
}

function show_all() {
    center(all, fitting());
    shown = "all";
}

function show_roots() {
    if (fitting() >= LEGIBLE || !nodes.length) center(all, fitting());
    else center(root().g.getBBox(), LEGIBLE, 0.2);
    shown = "roots";
}

function show_node(node, wanted) {
    center(node.g.getBBox(), wanted);
    shown = "chosen";
}

function on_resize() {
    if (shown == "all") show_all();
    else if (shown == "roots") show_roots();
    else move((room().width - size.width) / 2, (room().height - size.height) / 2);
    size = room();
}
var size;

function zoom_at(factor, at_x, at_y) {
    var wanted = Math.min(Math.max(scale * factor, LEAST), MOST);
    x = at_x - (at_x - x) * wanted / scale;
    y = at_y - (at_y - y) * wanted / scale;
    scale = wanted;
    shown = "chosen";
    place();
}

function move(by_x, by_y) {
    shown = "chosen";
    x += by_x;
    y += by_y;
    place();
}

function on_key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.key == "Escape") {
        search("");
        bar.input.blur();
        return;
    }
    if (e.target === bar.input) {
        if (e.key == "Enter") next_found(e.shiftKey ? -1 : 1);
        return;
    }
    var steps = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80] };
    var step = steps[e.key];
    if (step) move(step[0], step[1]);
    else if (e.key == "+") zoom_at(1.25, window.innerWidth / 2, window.innerHeight / 2);
    else if (e.key == "-") zoom_at(0.8, window.innerWidth / 2, window.innerHeight / 2);
    else if (e.key == "0") show_all();
    else if (e.key == "Home") show_roots();
    else if (e.key == "End" && nodes.length) {
        show_node(largest(nodes, function(node) { return node.own; }), LEGIBLE);
    } else if (e.key == "/") {
        bar.input.focus();
        bar.input.select();
    }
    else if (e.key == "n" || e.key == "N") next_found(e.key == "n" ? 1 : -1);
    else return;
    e.preventDefault();
}

// The line with the title and the search, which stays in the window.
function make_bar(svg) {
    var XHTML = "http://www.w3.org/1999/xhtml";
    var element = function(kind, name, parent) {
        var e = document.createElementNS(XHTML, kind);
        e.setAttribute("class", name);
        return parent.appendChild(e);
    };
    bar.place = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
    bar.place.setAttribute("width", "100%");
    bar.place.setAttribute("height", BAR);
    var div = element("div", "bar", bar.place);
    element("span", "graph-title", div).textContent = svg.querySelector("title").textContent;
    bar.matched = element("span", "matched", div);
    bar.matched.setAttribute("role", "status");
    bar.input = element("input", "search", div);
    bar.input.setAttribute("type", "search");
    bar.input.setAttribute("placeholder", "Search (/)");
    bar.input.setAttribute("aria-label", "Search");
    bar.input.setAttribute("title", "regular expression; Enter: next, Shift+Enter: previous, Esc: end");
    bar.input.addEventListener("input", function() { search(bar.input.value); });
    svg.appendChild(bar.place);
}

// A regular expression, or the text if it is none. Lowercase letters match uppercase ones, too.
function expression(term) {
    var flags = term == term.toLowerCase() ? "i" : "";
    try {
        return new RegExp(term, flags);
    } catch (e) {
        return new RegExp(term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), flags);
    }
}

function search(term) {
    if (bar.input.value != term) bar.input.value = term;
    var wanted = term ? expression(term) : null;
    found = nodes.filter(function(node) { return wanted && wanted.test(node.name); });
    found.sort(function(a, b) { return b.total - a.total; });
    current = -1;
    nodes.forEach(function(node) { node.g.classList.remove("found", "current"); });
    found.forEach(function(node) { node.g.classList.add("found"); });
    say_found();
}

function say_found() {
    var text = (current < 0 ? "" : (current + 1) + " of ") + found.length;
    var one = found.length == 1 && current < 0;
    bar.matched.textContent = bar.input.value ? text + (one ? " function" : " functions") : "";
}

function next_found(step) {
    if (!found.length) return;
    if (current >= 0) found[current].g.classList.remove("current");
    current = current < 0 ? (step > 0 ? 0 : found.length - 1) : (current + step + found.length) % found.length;
    found[current].g.classList.add("current");
    show_node(found[current], Math.max(scale, LEGIBLE));
    say_found();
}

function drag_by_pointer(svg) {
    var last = null;
    svg.addEventListener("pointerdown", function(e) {
        if (e.button != 0 || bar.place.contains(e.target)) return;
        last = e;
        svg.setPointerCapture(e.pointerId);
        svg.classList.add("dragged");
    });
    var end = function() {
        last = null;
        svg.classList.remove("dragged");
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("pointermove", function(e) {
        if (!last) return;
        move(e.clientX - last.clientX, e.clientY - last.clientY);
        last = e;
    });
}

window.addEventListener("load", function() {
    graph = document.getElementById("graph0");
    var svg = graph.ownerSVGElement;
    // Within another page, the graph is a picture.
    if (svg !== document.documentElement) return;
    ["width", "height", "viewBox"].forEach(function(name) { svg.removeAttribute(name); });
    svg.classList.add("scripted");
    graph.removeAttribute("transform");
    all = graph.getBBox();
    nodes = functions();
    size = room();
    make_bar(svg);
    svg.addEventListener("wheel", function(e) {
        e.preventDefault();
        zoom_at(Math.pow(1.0015, -e.deltaY), e.clientX, e.clientY);
    }, { passive: false });
    window.addEventListener("keydown", on_key);
    window.addEventListener("resize", on_resize);
    drag_by_pointer(svg);
    show_roots();
});
