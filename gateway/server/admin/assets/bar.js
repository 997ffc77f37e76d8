// The buttons in the head of each page: one stops it from following what goes on, one forgets the key.

import { forget } from "./door.js";
import { find } from "./elements.js";

// Begin: load looks again, tell says how it stands.  What is returned knows whether the page is paused.
export function bar(load, tell) {
    const state = { paused: false };
    find("pause").addEventListener("click", () => {
        state.paused = !state.paused;
        find("pause").setAttribute("aria-pressed", state.paused);
        if (state.paused) tell("paused");
        else load();
    });
    find("leave").addEventListener("click", () => {
        forget();
        location.reload();
    });
    return state;
}
