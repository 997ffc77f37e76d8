// The scroll position of a page whose content comes after it: Back and a reload return to it.

const before = history.state?.scroll ?? 0;
let restored = false;

addEventListener("pagehide", () => history.replaceState({ ...history.state, scroll: scrollY }, ""));

// Return to the position, once, when the content is there.
export function restoreScroll() {
    if (before && !restored) scrollTo(0, before);
    restored = true;
}
