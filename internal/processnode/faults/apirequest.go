package faults

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// apiRequest is what a request to the Kubernetes API is about, in RBAC's words.
type apiRequest struct {
	verb                                          string
	resource, group, subresource, namespace, name string // empty for requests such as /healthz and /apis
}

// parseAPIRequest reads a request's method and URL as an API server does.
func parseAPIRequest(r *http.Request) apiRequest {
	a := apiRequest{verb: map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[r.Method]}
	if a.verb == "" {
		a.verb = "get"
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		a.group, parts = parts[1], parts[3:]
	default:
		return a
	}
	if parts[0] == "watch" && len(parts) > 1 && a.verb == "get" { // an old way to write it
		a.verb, parts = "watch", parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		a.namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	a.resource = parts[0]
	if len(parts) > 1 {
		a.name = parts[1]
	}
	if len(parts) > 2 {
		a.subresource = parts[2]
	}
	if a.name != "" {
		return a
	}
	query := r.URL.Query()
	switch a.verb {
	case "get":
		a.verb = "list"
		if w := query.Get("watch"); w == "1" || strings.EqualFold(w, "true") {
			a.verb = "watch"
		}
	case "delete":
		a.verb = "deletecollection"
	}
	if a.verb != "create" {
		if selector, err := fields.ParseSelector(query.Get("fieldSelector")); err == nil {
			a.name, _ = selector.RequiresExactMatch("metadata.name")
		}
	}
	return a
}

// largestBody is how much of a request's body is kept while the request waits; API servers refuse more than 3 MB.
const largestBody = 16 << 20

// readBody reads the request's body, so that the client can send others meanwhile and the body can be read again.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, largestBody))
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		r.Body = http.NoBody
		return nil, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	return body, nil
}

// nameIn finds metadata.name in an object as JSON or protobuf; it is empty if there is none.
func nameIn(body []byte) string {
	if raw, ok := bytes.CutPrefix(body, []byte("k8s\x00")); ok {
		// runtime.Unknown has the object as its field 2; each object has its metadata, and this its name, as field 1.
		return string(protobufField(protobufField(protobufField(raw, 2), 1), 1))
	}
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &object)
	return object.Metadata.Name
}

// protobufField returns the first field of a message with that number and a length; nil if there is none.
func protobufField(message []byte, number uint64) []byte {
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		if n <= 0 {
			return nil
		}
		message = message[n:]
		value, n := binary.Uvarint(message)
		switch key & 7 {
		case 0: // a number
			if n <= 0 {
				return nil
			}
			message = message[n:]
		case 1: // eight bytes
			message = message[min(8, len(message)):]
		case 5: // four bytes
			message = message[min(4, len(message)):]
		case 2:
			if n <= 0 || value > uint64(len(message)-n) {
				return nil
			}
			field := message[n : n+int(value)]
			if key>>3 == number {
				return field
			}
			message = message[n+int(value):]
		default:
			return nil
		}
	}
	return nil
}

// matches reports whether the fault is about requests of this kind.
func (a apiRequest) matches(f *v1alpha1.APIFault) bool {
	if len(f.Verbs) > 0 && !slices.Contains(f.Verbs, a.verb) ||
		len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, a.namespace) ||
		len(f.Names) > 0 && !slices.Contains(f.Names, a.name) {
		return false
	}
	return len(f.Resources) == 0 || slices.ContainsFunc(f.Resources, a.isResource)
}

// isResource reports whether the request's resource is meant by a pattern such as statefulsets, statefulsets.apps,
// pods/status, pods/* or *.
func (a apiRequest) isResource(pattern string) bool {
	if a.resource == "" {
		return false
	}
	pattern, subresource, _ := strings.Cut(pattern, "/")
	if subresource != a.subresource && subresource != "*" {
		return false
	}
	resource, group, withGroup := strings.Cut(pattern, ".")
	return (resource == "*" || resource == a.resource) && (!withGroup || group == a.group)
}
