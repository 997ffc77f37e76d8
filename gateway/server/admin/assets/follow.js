// Follows the data of a page: fetches it with the key, asks for one where it is refused, and looks again.

import { ask, forget, keep, key, reason } from "./api_key.js";
import { find } from "./elements.js";

export function tell(text) {
    find("status").textContent = text;
}

// Show the form for the key, or the content.
export function open(known) {
    find("closed").hidden = known;
    find("following").hidden = document.querySelector("[data-opened]").hidden = !known;
    find("leave").hidden = !key();
}

// Return the data of an address; null if the gateway refuses, as the page then shows.
export async function get(where, query) {
    const answer = await ask(`${where}?${query}`);
    if (answer.ok) return answer.json();
    const text = reason(await answer.text()) ?? `The gateway returned HTTP ${answer.status}.`;
    if (answer.status === 401 || answer.status === 403) refuse(text);
    else tell(text);
    return null;
}

function refuse(text) {
    find("refusal").textContent = key() ? text : "";
    forget();
    open(false);
    find("key").focus();
}

// The switch that stops a page from following the gateway, and the button that forgets the key.
// load fetches again, tell shows a text.  The page reads `paused` of the returned state.
export function live(load, tell) {
    const state = { paused: false };
    document.addEventListener("click", (event) => {
        const { id } = event.target.closest("button") ?? {};
        if (id === "leave") {
            forget();
            location.reload();
        }
        if (id !== "live") return;
        state.paused = !state.paused;
        find("live").setAttribute("aria-pressed", !state.paused);
        if (state.paused) tell("paused");
        else load();
    });
    return state;
}

// Call look() now, and again after some seconds while it returns true.  Return a function that does so at once.
export function follow(look, seconds) {
    const buttons = live(load, tell);
    let timer = 0, turns = 0;
    async function load() {
        clearTimeout(timer);
        const turn = ++turns;
        let more = true;
        try {
            more = await look();
        } catch (error) {
            if (!(error instanceof TypeError)) throw error;
            tell("The gateway does not respond.");
        }
        if (turn === turns && more && !buttons.paused && !document.hidden) timer = setTimeout(load, seconds * 1000);
    }
    find("key-form").addEventListener("submit", (event) => {
        event.preventDefault();
        keep(find("key").value);
        load();
    });
    return load;
}
