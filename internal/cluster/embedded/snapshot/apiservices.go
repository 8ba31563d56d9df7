package snapshot

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

const apiServicesPrefix = registryPrefix + "apiregistration.k8s.io/apiservices/"

// withoutAvailability leaves out the APIServices of which only the status has changed. Each API server says there
// whether it reaches the one that the APIService is for, in words of its own: while that one is down, they may write
// over each other and over what a reset has restored, without end.
func withoutAvailability(ctx context.Context, store *store, b *snapshot, changes []keyChange) ([]keyChange, error) {
	ofAPIService := func(c keyChange) bool { return c.value != nil && strings.HasPrefix(c.key, apiServicesPrefix) }
	if !slices.ContainsFunc(changes, ofAPIService) {
		return changes, nil
	}
	now, _, err := store.list(ctx, apiServicesPrefix, false)
	if err != nil {
		return nil, err
	}
	there := map[string]keyValue{}
	for _, kv := range now {
		there[string(kv.Key)] = kv
	}
	return slices.DeleteFunc(changes, func(c keyChange) bool {
		kv, ok := there[c.key]
		if !ok || !ofAPIService(c) || !sameButStatus(kv.Value, c.value) {
			return false
		}
		was := b.Keys[c.key]
		was.Modified = kv.ModRevision
		b.Keys[c.key] = was
		return true
	}), nil
}

// sameButStatus reports whether two objects in JSON differ at most in their status, and in who wrote it.
func sameButStatus(x, y []byte) bool {
	rest := func(text []byte) (object map[string]any, ok bool) {
		if json.Unmarshal(text, &object) != nil {
			return nil, false
		}
		delete(object, "status")
		if meta, ok := object["metadata"].(map[string]any); ok {
			delete(meta, "managedFields")
		}
		return object, true
	}
	a, readable := rest(x)
	b, also := rest(y)
	return readable && also && reflect.DeepEqual(a, b)
}
