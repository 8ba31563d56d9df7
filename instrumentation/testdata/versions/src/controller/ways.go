package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
)

// way is one way to read or write: it returns the state that it found, or an error.
type way func(ctx context.Context, name string) (string, error)

// serveWays lets the test read and write whenever it wants to, by GET /WAY?name=NAME on the socket that the environment
// names.
func serveWays(ways map[string]way) {
	socket := os.Getenv("WAYS")
	if socket == "" {
		return
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	go func() {
		panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			way, ok := ways[r.URL.Path[1:]]
			if !ok {
				http.NotFound(w, r)
				return
			}
			state, err := way(r.Context(), r.URL.Query().Get("name"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, state)
		})))
	}()
}
