// Clients in JavaScript, for clients.py: node reads this from standard input, with PACKAGE, BASE and MODEL as its arguments.

import assert from "node:assert/strict";

const [package_, base, model] = process.argv.slice(2);
const ask = "Why is the sky blue?";
const CITIES = ["Paris", "Rome"];

const clients = {
  // generateObject by chat, with and without a schema that the server holds, and by Responses; streamObject; a tool; streamText.
  async ai() {
    const { generateObject, generateText, jsonSchema, streamObject, streamText, tool } = await import("ai");
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    const { createOpenAI } = await import("@ai-sdk/openai");
    const { z } = await import("zod");
    const url = { name: "vosti", baseURL: base + "/v1", apiKey: "none" };
    const chat = createOpenAICompatible({ ...url, supportsStructuredOutputs: true })(model);
    const responses = createOpenAI(url)(model);
    const schema = z.object({ city: z.enum(CITIES), why: z.string().max(24) });
    for (const [name, served] of Object.entries({ chat, responses })) {
      const asked = { model: served, prompt: "A city?", maxOutputTokens: 64, maxRetries: 0 };
      if (name === "chat") asked.seed = 7;
      const { object } = await generateObject({ ...asked, schema });
      assert(CITIES.includes(object.city) && object.why.length <= 24, JSON.stringify(object));
      const chosen = await generateObject({ ...asked, output: "enum", enum: CITIES });
      assert(CITIES.includes(chosen.object), chosen.object);
      const list = await generateObject({ ...asked, output: "array", schema: jsonSchema({ enum: CITIES }), maxOutputTokens: 400 }).catch((error) => error);
      // The length of a list is the model's: a list that the limit cut is no list.
      assert(list.object?.every((city) => CITIES.includes(city)) ?? list.finishReason === "length", String(list));
      const stream = streamObject({ ...asked, schema, onError: ({ error }) => { throw error; } });
      let streamed;
      for await (streamed of stream.partialObjectStream);
      assert(CITIES.includes(streamed.city), JSON.stringify(streamed));
      if (name === "chat") assert.deepEqual(streamed, object);
      const weather = tool({ description: "The weather of a city", inputSchema: z.object({ city: z.enum(CITIES) }), execute: () => "sunny" });
      const called = await generateText({ ...asked, tools: { weather }, toolChoice: "required" });
      assert(CITIES.includes(called.toolCalls[0].input.city), JSON.stringify(called.toolCalls));
      const told = [{ role: "user", content: ask }, ...called.response.messages];
      assert((await generateText({ ...asked, prompt: undefined, messages: told, tools: { weather }, toolChoice: "none" })).text);
      const whole = streamText({ ...asked, prompt: ask, temperature: 0, maxOutputTokens: 24 });
      let parts = "";
      for await (const part of whole.textStream) parts += part;
      assert.equal(parts, (await generateText({ ...asked, prompt: ask, temperature: 0, maxOutputTokens: 24 })).text);
    }
    // Without structured outputs the package asks for any JSON object, and writes the schema into the prompt.
    const loose = createOpenAICompatible(url)(model);
    const { object } = await generateObject({ model: loose, output: "no-schema", prompt: ask, seed: 7, maxOutputTokens: 200, maxRetries: 0 });
    assert.equal(typeof object, "object");
  },

  // chat: twice, streamed, a schema; the seed that was drawn, asked for again.
  async ollama() {
    const { Ollama } = await import("ollama");
    const api = new Ollama({ host: base });
    const messages = [{ role: "user", content: ask }];
    const options = { num_predict: 24 };
    const one = await api.chat({ model, messages, options });
    const seed = JSON.parse(JSON.stringify(one)).vosti_seed;
    const again = await api.chat({ model, messages, options: { ...options, seed } });
    assert.equal(again.message.content, one.message.content);
    let parts = "";
    for await (const part of await api.chat({ model, messages, stream: true, options: { ...options, seed } })) parts += part.message.content;
    assert.equal(parts, one.message.content);
    const format = { type: "object", properties: { city: { enum: CITIES } }, required: ["city"], additionalProperties: false };
    const held = await api.chat({ model, messages, format, options: { num_predict: 64 } });
    assert(CITIES.includes(JSON.parse(held.message.content).city), held.message.content);
    assert((await api.list()).models.some((entry) => entry.model === model));
    assert((await api.show({ model })).model_info);
    await assert.rejects(api.chat({ model: "absent", messages }), /absent/);
  },
};

await clients[package_]();
