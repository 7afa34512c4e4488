package proxytest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Script returns the reply to a request. It runs in the request's goroutine; ctx ends
// when the client leaves.
type Script = func(ctx context.Context, r Request) Reply

// Silent never answers: it waits until the client leaves.
func Silent(ctx context.Context, _ Request) Reply {
	<-ctx.Done()
	return Reply{Cut: true}
}

// TooMany answers 429 with Retry-After, in seconds, and OpenAI's error body.
func TooMany(retryAfter int) Script {
	return func(context.Context, Request) Reply {
		return Reply{
			Status: http.StatusTooManyRequests,
			Header: http.Header{"Retry-After": {strconv.Itoa(retryAfter)}},
			Body:   `{"error":{"message":"Rate limit reached","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`,
		}
	}
}

// Fails answers with a status of 400 or more and OpenAI's error body.
func Fails(status int, message string) Script {
	return func(context.Context, Request) Reply {
		return Reply{Status: status, Body: `{"error":{"message":` + quote(message) + `,"type":"server_error","param":null,"code":null}}`}
	}
}

// First serves the first n requests with one script and the others with another one.
func First(n int, first, rest Script) Script {
	var served atomic.Int64
	return func(ctx context.Context, r Request) Reply {
		if served.Add(1) <= int64(n) {
			return first(ctx, r)
		}
		return rest(ctx, r)
	}
}

// SlowHeaders calls wait before it answers. If wait fails, the connection is reset.
func SlowHeaders(script Script, wait func(ctx context.Context) error) Script {
	return func(ctx context.Context, r Request) Reply {
		if err := wait(ctx); err != nil {
			return Reply{Reset: true}
		}
		return script(ctx, r)
	}
}

// altered is a script whose replies alter changes.
func altered(script Script, alter func(*Reply)) Script {
	return func(ctx context.Context, r Request) Reply {
		reply := script(ctx, r)
		alter(&reply)
		return reply
	}
}

// pieces returns the pieces of a reply. A body in one piece is cut in two, so that a fault can
// happen in its middle.
func pieces(reply Reply) []string {
	if len(reply.Pieces) > 0 || len(reply.Body) < 2 {
		return reply.Pieces
	}
	return []string{reply.Body[:len(reply.Body)/2], reply.Body[len(reply.Body)/2:]}
}

// Stall sends n pieces, but never the last one, and then nothing until the client
// leaves.
func Stall(script Script, n int) Script {
	return altered(script, func(reply *Reply) {
		reply.Pieces, reply.Body = pieces(*reply), ""
		stop := min(n, len(reply.Pieces)-1)
		reply.Step = func(ctx context.Context, i int) error {
			if i < stop {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
	})
}

// Cut closes the connection after n pieces, in the middle of the reply.
func Cut(script Script, n int) Script {
	return altered(script, func(reply *Reply) {
		reply.Pieces, reply.Body, reply.Cut = pieces(*reply), "", true
		reply.Pieces = reply.Pieces[:min(n, len(reply.Pieces))]
	})
}

// Reset resets the connection after n pieces, so that the client may lose even those.
func Reset(script Script, n int) Script {
	return altered(Cut(script, n), func(reply *Reply) { reply.Reset = true })
}

// Typed sends a reply with another content type.
func Typed(script Script, contentType string) Script {
	return altered(script, func(reply *Reply) { reply.ContentType = contentType })
}

// Insert puts more pieces before a piece of a stream, such as an event that is not JSON,
// a comment, or a line of megabytes.
func Insert(script Script, at int, more ...string) Script {
	return altered(script, func(reply *Reply) {
		if len(reply.Pieces) == 0 {
			return
		}
		at := min(at, len(reply.Pieces))
		reply.Pieces = slices.Concat(reply.Pieces[:at], more, reply.Pieces[at:])
	})
}

// Chopped sends a reply in pieces of n bytes, which splits events, lines and multi-byte
// characters.
func Chopped(script Script, n int) Script {
	return altered(script, func(reply *Reply) {
		all := reply.Body + strings.Join(reply.Pieces, "")
		reply.Body, reply.Pieces = "", nil
		for len(all) > n {
			reply.Pieces, all = append(reply.Pieces, all[:n]), all[n:]
		}
		reply.Pieces = append(reply.Pieces, all)
	})
}
