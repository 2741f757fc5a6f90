// Moves and scales the graph in the window: with the mouse and its wheel, arrows, + and -; 0 shows all
// of it, Home the function with the largest self value.

"use strict";
// Scales: that of the smallest text that is read easily, and the limits.
var LEGIBLE = 1.25, LEAST = 0.02, MOST = 20;
var graph, all;
var scale = 1, x = 0, y = 0;

function place() {
    graph.setAttribute("transform", "translate(" + x + " " + y + ") scale(" + scale + ")");
}

// A place where `box` is in the middle, or the end of the graph at that of the window.
function center(box, wanted) {
    var at = function(window_size, from, size, all_from, all_size) {
        var middle = window_size / 2 - (from + size / 2) * wanted;
        var first = -all_from * wanted, last = window_size - (all_from + all_size) * wanted;
        if (last > first) return (first + last) / 2;
        return Math.min(first, Math.max(last, middle));
    };
    x = at(window.innerWidth, box.x, box.width, all.x, all.width);
    y = at(window.innerHeight, box.y, box.height, all.y, all.height);
    scale = wanted;
    place();
}

function fitting() {
    return Math.min(window.innerWidth / all.width, window.innerHeight / all.height, 2 * LEGIBLE);
}

// Larger text stands for a larger value. The legend is no function.
function largest() {
    var size = function(node) {
        return parseFloat(node.querySelector("text").getAttribute("font-size"));
    };
    var nodes = Array.from(document.querySelectorAll(".node")).filter(function(node) {
        return node.querySelector("text") && node.querySelector("title").textContent != "L";
    });
    if (nodes.length == 0) return graph;
    return nodes.reduce(function(a, b) { return size(b) > size(a) ? b : a; });
}

function open_graph() {
    if (fitting() >= LEGIBLE) center(all, fitting());
    else center(largest().getBBox(), LEGIBLE);
}

function zoom_at(factor, at_x, at_y) {
    var wanted = Math.min(Math.max(scale * factor, LEAST), MOST);
    x = at_x - (at_x - x) * wanted / scale;
    y = at_y - (at_y - y) * wanted / scale;
    scale = wanted;
    place();
}

function move(by_x, by_y) {
    x += by_x;
    y += by_y;
    place();
}

function on_key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    var steps = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80] };
    var step = steps[e.key];
    if (step) move(step[0], step[1]);
    else if (e.key == "+") zoom_at(1.25, window.innerWidth / 2, window.innerHeight / 2);
    else if (e.key == "-") zoom_at(0.8, window.innerWidth / 2, window.innerHeight / 2);
    else if (e.key == "0") center(all, fitting());
    else if (e.key == "Home") open_graph();
    else return;
    e.preventDefault();
}

function drag_by_pointer(svg) {
    var last = null;
    svg.addEventListener("pointerdown", function(e) {
        if (e.button != 0) return;
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
    svg.addEventListener("wheel", function(e) {
        e.preventDefault();
        zoom_at(Math.pow(1.0015, -e.deltaY), e.clientX, e.clientY);
    }, { passive: false });
    window.addEventListener("keydown", on_key);
    drag_by_pointer(svg);
    open_graph();
});
