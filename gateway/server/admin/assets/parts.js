// What the parts of a page that load later have in common: styles of their own, and sentences with code.

import { made } from "./elements.js";

// Load styles; the content follows them.
export function styles(name) {
    const sheet = made("link");
    Object.assign(sheet, { rel: "stylesheet", href: new URL(name, import.meta.url) });
    document.head.append(sheet);
    return new Promise((loaded) => {
        sheet.onload = sheet.onerror = loaded;
    });
}

// Names between backquotes are code.
export function coded(text, look = "") {
    const shown = made("p", "", look);
    shown.append(...text.split("`").map((part, place) => place % 2 ? made("code", part) : part));
    return shown;
}
