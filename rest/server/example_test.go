package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
)

// Serve a store, ask it as any HTTP client would, and stop.
func Example() {
	if err := serveOnce(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 {"status":"ok"}
	// 201 queuing
	// 200 preparing
}

func serveOnce(ctx context.Context) error {
	engine, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		return err
	}
	defer engine.Close(ctx)

	api, err := server.New(server.Config{Store: engine, Token: "s3cret"})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()

	base := "http://agl:s3cret@" + listener.Addr().String() + "/v1/agl"
	status, body := get(base + "/health")
	fmt.Println(status, body)
	status, body = post(base+"/queues/rollouts/enqueue", `{"rollouts":[{"input":{"question":"what is 12 + 30?"}}]}`)
	fmt.Println(status, statusOf(body))
	status, body = post(base+"/queues/rollouts/dequeue", `{"worker_id":"w-1","wait_seconds":30}`)
	fmt.Println(status, statusOf(body))

	api.Drain() // blocked requests are answered
	if err := web.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func get(url string) (status int, body string) { return answer(http.Get(url)) }

func post(url, body string) (status int, answered string) {
	return answer(http.Post(url, "application/json", strings.NewReader(body)))
}

func answer(res *http.Response, err error) (status int, body string) {
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, err.Error()
	}
	return res.StatusCode, string(text)
}

// statusOf returns the first status in a document.
func statusOf(doc string) string {
	_, after, _ := strings.Cut(doc, `"status":"`)
	status, _, _ := strings.Cut(after, `"`)
	return status
}
