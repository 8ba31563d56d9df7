// Command standin answers the operator's Jolokia requests to Cassandra pods, at port 8778. It lists no keyspaces. The
// mode of a node is NORMAL until the operator decommissions the node, and then DECOMMISSIONED. The host name to which
// the operator connects identifies the node.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"strings"
	"sync"

	_ "k8s.io/client-go/rest" // Trommel runs programs that use client-go
)

type request struct {
	Type, MBean, Attribute, Operation string
}

func main() {
	var mu sync.Mutex
	left := map[string]bool{}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var asked request
		if parts := strings.Split(r.URL.Path, "/"); r.Method == http.MethodGet {
			asked.Attribute = parts[len(parts)-1]
		} else if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var value interface{} = []interface{}{}
		switch {
		case asked.Operation == "decommission":
			left[r.Host] = true
		case asked.Attribute == "HostIdMap":
			value = map[string]interface{}{}
		case asked.Attribute == "OperationMode" && left[r.Host]:
			value = "DECOMMISSIONED"
		case asked.Attribute == "OperationMode":
			value = "NORMAL"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]interface{}{"status": 200, "value": value})
	})
	log.Fatal(http.ListenAndServe(":8778", nil))
}
