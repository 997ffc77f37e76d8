// Elements of a page; their content is text.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = new URL("icons.svg", import.meta.url).pathname;

export const find = (id) => document.getElementById(id);

export function made(name, text = "", look = "") {
    const element = document.createElement(name);
    element.textContent = text;
    if (look) element.className = look;
    return element;
}

export const badge = (text, look = "") => made("span", text, `badge ${look}`);

// The outcome of a request, or that it is still running.
export function state({ live, status }) {
    if (live) return badge("running", "live");
    return badge(status, status < 400 ? "ok" : status < 500 ? "warn" : "bad");
}

// An icon of icons.svg; words beside it say what it means.
export function icon(name) {
    const drawing = document.createElementNS(SVG, "svg"), use = document.createElementNS(SVG, "use");
    drawing.setAttribute("class", "icon");
    drawing.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `${ICONS}#${name}`);
    drawing.append(use);
    return drawing;
}
