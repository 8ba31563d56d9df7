package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// store reads and writes the cluster's etcd through its JSON gateway on the unix socket: the few calls that are needed
// do not justify the dependency on etcd's client. It is safe for concurrent use.
type store struct{ http *http.Client }

func newStore(socket string) *store {
	return &store{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: writeAtOnce,
	}}}
}

func (s *store) close() { s.http.CloseIdleConnections() }

// keyValue is a key of etcd. In JSON its integers are strings, its bytes base64.
type keyValue struct {
	Key            []byte `json:"key"`
	Value          []byte `json:"value,omitempty"`
	CreateRevision int64  `json:"create_revision,string"`
	ModRevision    int64  `json:"mod_revision,string"`
}

type rangeRequest struct {
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"range_end,omitempty"`
	KeysOnly bool   `json:"keys_only,omitempty"`
}

type rangeResponse struct {
	Header header     `json:"header"`
	KVs    []keyValue `json:"kvs"`
}

type header struct {
	Revision int64 `json:"revision,string"`
}

// list returns the keys with the prefix, and the store's revision. With keysOnly it omits the values.
func (s *store) list(ctx context.Context, prefix string, keysOnly bool) ([]keyValue, int64, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	answer, err := call[rangeResponse](ctx, s, "range", rangeRequest{
		Key: []byte(prefix), RangeEnd: end, KeysOnly: keysOnly,
	})
	return answer.KVs, answer.Header.Revision, err
}

// revision returns the store's current revision.
func (s *store) revision(ctx context.Context) (int64, error) {
	answer, err := call[rangeResponse](ctx, s, "range", rangeRequest{Key: []byte(registryPrefix), KeysOnly: true})
	return answer.Header.Revision, err
}

// Revision returns the current revision of the etcd at a socket.
func Revision(ctx context.Context, socket string) (int64, error) {
	s := newStore(socket)
	defer s.close()
	return s.revision(ctx)
}

// Objects returns the objects that a reset restores, from the etcd at a socket, by their keys. If a key must only
// exist, its value is empty.
func Objects(ctx context.Context, socket string) (map[string]string, error) {
	s := newStore(socket)
	defer s.close()
	keys, _, err := s.list(ctx, registryPrefix, false)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, kv := range keys {
		switch roleOf(string(kv.Key)) {
		case restored:
			all[string(kv.Key)] = string(kv.Value)
		case present:
			all[string(kv.Key)] = ""
		}
	}
	return all, nil
}

// change puts a key, or deletes it if value is nil.
type change struct {
	key   string
	value []byte // nil: delete
}

type txnRequest struct {
	Success []txnOperation `json:"success"`
}

type txnOperation struct {
	Put    *keyBytes `json:"request_put,omitempty"`
	Delete *keyBytes `json:"request_delete_range,omitempty"`
}

type keyBytes struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value,omitempty"`
}

type txnResponse struct {
	Header    header `json:"header"`
	Succeeded bool   `json:"succeeded"`
}

// apply makes the changes in one transaction and returns its revision, which is then that of every key put.
func (s *store) apply(ctx context.Context, changes []change) (int64, error) {
	request := txnRequest{}
	for _, c := range changes {
		kv := &keyBytes{Key: []byte(c.key), Value: c.value}
		if c.value == nil {
			request.Success = append(request.Success, txnOperation{Delete: kv})
		} else {
			request.Success = append(request.Success, txnOperation{Put: kv})
		}
	}
	answer, err := call[txnResponse](ctx, s, "txn", request)
	if err == nil && !answer.Succeeded {
		err = fmt.Errorf("etcd: a transaction of %d changes was refused", len(changes))
	}
	return answer.Header.Revision, err
}

func call[Answer any](ctx context.Context, s *store, method string, request any) (answer Answer, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return answer, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	response, err := s.http.Do(r)
	if err != nil {
		return answer, fmt.Errorf("etcd: %s: %w", method, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return answer, fmt.Errorf("etcd: %s: %w", method, err)
	}
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("etcd: %s: %s: %s", method, response.Status, bytes.TrimSpace(data))
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, fmt.Errorf("etcd: %s: %w", method, err)
	}
	return answer, nil
}
