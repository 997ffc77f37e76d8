// openai-node over endpoints that are passed on, embeddings, files and batches: node with_scripted_backend.mjs URL CHECK
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

const [, , baseURL, check] = process.argv;
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const audio = () => toFile(Buffer.from("RIFF".repeat(1000)), "a.wav");
const transcribe = async () => client.audio.transcriptions.create({ model: "m", file: await audio(), stream: true });

const CHECKS = {
  async whole() {
    assert.equal((await client.audio.transcriptions.create({ model: "m", file: await audio() })).text, "Hello");
    const speech = await client.audio.speech.create({ model: "m", input: "Hello", voice: "alloy" });
    assert.equal(Buffer.from(await speech.arrayBuffer()).toString(), "ID3abc");
    assert.equal((await client.images.generate({ model: "m", prompt: "A boat." })).data[0].b64_json, "AAAA");
    const image = await toFile(Buffer.from("png"), "a.png", { type: "image/png" });
    assert.equal((await client.images.edit({ model: "m", prompt: "A boat.", image })).data[0].b64_json, "AAAA");
    assert.equal((await client.moderations.create({ model: "m", input: "Hello" })).results[0].flagged, false);
  },
  async embeddings() {
    const messages = [{ role: "user", content: [{ type: "text", text: "Hello" }] }];
    const one = await client.embeddings.create({ model: "m", messages });
    assert.deepEqual([...one.data[0].embedding], [0.5, 1]);
    const several = await client.embeddings.create({ model: "m", input: "Hello", encoding_format: "float" });
    assert.deepEqual(several.data[0].embedding, [[0.5, 1], [2, 3]]);
  },
  async streamed() {
    const types = [];
    for await (const event of await transcribe()) types.push(event.type);
    assert.deepEqual(types, ["transcript.text.delta", "transcript.text.done"]);
  },
  async failure() {
    const types = [];
    await assert.rejects(async () => {
      for await (const event of await transcribe()) types.push(event.type);
    }, { code: "upstream_lost" });
    assert.deepEqual(types, ["transcript.text.delta"]);
  },
  async abort() {
    for await (const event of await transcribe()) {
      assert.equal(event.type, "transcript.text.delta");
      break; // closes the connection
    }
  },
  async incomplete() {
    const speech = await client.audio.speech.create({ model: "m", input: "Hello", voice: "alloy" });
    await assert.rejects(speech.arrayBuffer());
  },
  async batch() {
    const body = { model: "m", messages: [{ role: "user", content: "Hello" }] };
    const line = (custom_id) => JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
    const file = await toFile(Buffer.from(`${line("a")}\n${line("b")}\n`), "a.jsonl");
    const { id: input_file_id } = await client.files.create({ file, purpose: "batch" });
    const endpoint = "/v1/chat/completions";
    let batch = await client.batches.create({ input_file_id, endpoint, completion_window: "24h" });
    while (!batch.completed_at && !batch.failed_at) batch = await client.batches.retrieve(batch.id);
    assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
    const lines = (await (await client.files.content(batch.output_file_id)).text()).trim().split("\n").map(JSON.parse);
    assert.deepEqual(lines.map((each) => each.custom_id).sort(), ["a", "b"]);
    assert.ok(lines.every((each) => each.response.body.choices[0].message.content === "Hi"));
    await client.files.delete(batch.output_file_id);
  },
};

await CHECKS[check]();
