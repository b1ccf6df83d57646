// Package front is the server of HTTP and HTTPS that takes requests from outside to the endpoints of Services. Who
// makes it says which backend a request is for (Config.Find) and how endpoints are dialled; backends learn of their
// endpoints by Backend.Set.
//
// Guarantees:
//
//   - A request goes to one endpoint. Another one is tried, three in all, when no connection to it comes about, so
//     that nothing was sent, and when it breaks before an answer to GET, HEAD, OPTIONS or TRACE without a body. The
//     transport of net/http repeats idempotent requests whose kept connection turns out to be closed.
//   - Changes of routes, endpoints and certificates hold for the next request and touch none that is on its way.
//   - Endpoints see the Host that the client has sent. X-Forwarded-For, -Host and -Proto are those of the client's
//     connection: what the client says of the kind itself is taken away.
//   - Upgrades such as WebSocket, streams in both directions, trailers and HTTP/2 are passed on as they come.
//   - What a client may hold is bounded: connections, requests at once, the size of headers, the time in which headers
//     must be there, and the time in which a body must move on. So is the time until an endpoint begins to answer.
//
// Answers of its own are 404 for requests that no route fits, 503 where no endpoint is ready or too much is asked at
// once, 502 and 504 for endpoints that cannot be connected to, break off or do not answer, and 408 for clients that do
// not send what they have promised.
package front
