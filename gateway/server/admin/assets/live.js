// The switch that stops a page from following the gateway, and the button that forgets the key.

import { forget } from "./api_key.js";
import { find } from "./elements.js";

// Begin: load fetches again, tell shows a text.  The page reads `paused` of the returned state.
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
