// Command standin answers the operator's requests to the sidecars of Cassandra pods, at port 4567. The mode of a node
// is NORMAL until the operator decommissions the node, and then DECOMMISSIONED. The address to which the operator
// connects identifies the node.
package main

import (
	"fmt"
	"log"
	"net/http"
	"sync"

	_ "k8s.io/client-go/rest" // Trommel runs programs that use client-go
)

func main() {
	var mu sync.Mutex
	left := map[string]bool{}
	http.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		state := "NORMAL"
		if left[r.Host] {
			state = "DECOMMISSIONED"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"nodeState": %q}`, state)
	})
	http.HandleFunc("/operations", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		left[r.Host] = true
		w.Header().Set("Location", "/operations/00000000-0000-4000-8000-000000000001")
		w.WriteHeader(http.StatusCreated)
	})
	log.Fatal(http.ListenAndServe(":4567", nil))
}
