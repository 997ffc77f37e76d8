// Elements of a page; whatever is said in them is text.

export const find = (id) => document.getElementById(id);

export function made(name, said = "", look = "") {
    const element = document.createElement(name);
    element.textContent = said;
    if (look) element.className = look;
    return element;
}

export const badge = (said, look = "") => made("span", said, `badge ${look}`);
