// Chat completions, as dialects.js says.

import { callOf, failed } from "./dialects.js";

export const api = {
    path: "/v1/chat/completions",
    body({ system, tools, history, temperature, limit, stream }) {
        const messages = system ? [{ role: "system", content: system }] : [];
        for (const turn of history) messages.push(api.message(turn));
        const usage = stream ? { stream_options: { include_usage: true } } : {};
        return { messages, tools, temperature, max_completion_tokens: limit, stream, ...usage };
    },
    message({ role, text, id, calls }) {
        if (role === "tool") return { role, tool_call_id: id, content: text };
        if (!calls?.length) return { role, content: text };
        const functions = calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: args } }));
        return { role, content: text || null, tool_calls: functions };
    },
    read(answer, { choices, usage, error }) {
        if (error) failed(answer, error);
        if (usage) answer.usage = { input: usage.prompt_tokens, output: usage.completion_tokens };
        const { delta, message, finish_reason: finish } = choices?.[0] ?? {};
        const part = delta ?? message ?? {};
        answer.text += part.content ?? "";
        answer.reasoning += part.reasoning_content ?? part.reasoning ?? "";
        (part.tool_calls ?? []).forEach(({ index, id, function: called }, place) => {
            callOf(answer, index ?? place, { id, name: called?.name }).args += called?.arguments ?? "";
        });
        answer.finish = finish ?? answer.finish;
    },
};
