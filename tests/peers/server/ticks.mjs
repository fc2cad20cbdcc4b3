// Publishes ticks with the TypeScript SDK: node ticks.mjs http | node ticks.mjs stdio. On HTTP it prints its port.
// Poll and push; the cursor is the number of the last tick.
import http from 'node:http';
import { Readable } from 'node:stream';
import { McpServer, createMcpHandler, ProtocolError } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const EVERY = 100;
const NAME = 'clock.tick';
const begun = Date.now();
const newest = () => Math.floor((Date.now() - begun) / EVERY);
const tick = (n) => ({ eventId: `tick-${n}`, name: NAME, timestamp: new Date(begun + n * EVERY).toISOString(), data: { n } });
const any = z.looseObject({});

const build = () => {
  const server = new McpServer(
    { name: 'ticks', version: '1' },
    { capabilities: { extensions: { 'io.modelcontextprotocol/events': {} } } },
  );
  const on = (method, answer) => server.server.setRequestHandler(method, { params: any }, answer);
  const known = ({ name }) => {
    if (name !== NAME) throw new ProtocolError(-32023, 'NotFound');
  };
  on('events/list', async () => ({
    events: [
      { name: NAME, description: 'A tick.', delivery: ['poll', 'push'], inputSchema: { type: 'object' }, payloadSchema: { type: 'object' } },
    ],
  }));
  on('events/poll', async (params) => {
    known(params);
    const end = newest();
    const begin = params.cursor == null ? end : Number(params.cursor);
    const events = Array.from({ length: Math.max(0, end - begin) }, (_, i) => tick(begin + 1 + i));
    return { events, cursor: String(end), truncated: false, hasMore: false, nextPollMs: EVERY };
  });
  on('events/stream', async (params, context) => {
    known(params);
    const _meta = { 'io.modelcontextprotocol/subscriptionId': context.mcpReq.id };
    const say = (kind, body) =>
      context.mcpReq.notify({ method: `notifications/events/${kind}`, params: { ...body, _meta } });
    let at = params.cursor == null ? newest() : Number(params.cursor);
    await say('active', { cursor: String(at), truncated: false });
    while (!context.mcpReq.signal.aborted) {
      await new Promise((resolve) => setTimeout(resolve, EVERY));
      while (at < newest()) {
        at += 1;
        await say('event', { ...tick(at), cursor: String(at) });
      }
    }
    return { _meta };
  });
  return server;
};

if (process.argv[2] === 'stdio') {
  serveStdio(build);
} else {
  const handler = createMcpHandler(build);
  const server = http.createServer(async (request, response) => {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = request.method === 'POST' ? Buffer.concat(parts) : undefined;
    const url = new URL(request.url, 'http://127.0.0.1');
    const answer = await handler.fetch(new Request(url, { method: request.method, headers: request.headers, body, signal: gone.signal }));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body).on('error', () => {}).pipe(response);
    else response.end();
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
}
