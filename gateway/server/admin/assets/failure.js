// What failed: the response of the backend beside the one to the client, and what to do.

import { badge, find } from "./elements.js";
import { pretty } from "./conversation.js";
import { coded, styles } from "./parts.js";

await styles("compare.css");

export function showFailure(failure) {
    find("failure").hidden = false;
    find("advice").replaceChildren(...coded(failure.advice).childNodes);
    find("equal").textContent = failure.equal > 1 ? `${failure.equal} equal failures in the last hour` : "";
    find("upstream-status").replaceChildren(failure.upstream_status ? badge(failure.upstream_status, "bad") : "");
    const none = failure.backend ? "The backend sent no error response." : "No backend was called.";
    find("upstream-body").textContent = pretty(failure.body) + (failure.cut ? `\n… of ${failure.cut} bytes` : "") || none;
    find("client-status").replaceChildren(badge(failure.status, "bad"));
    find("client-body").textContent = pretty(failure.sent) || "The client received nothing.";
}
