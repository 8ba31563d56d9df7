package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// listen opens the socket, which only this user can open.
func (s *Set) listen() error {
	_ = os.Remove(s.config.Socket)
	listener, err := net.Listen("unix", s.config.Socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(s.config.Socket, 0o600); err != nil {
		_ = listener.Close()
		return err
	}
	s.listener = listener
	return nil
}

// Serve serves injectors until the set's context ends.
func (s *Set) Serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /faults/{id}", s.put)
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.end(r.Context(), r.PathValue("id")); err != nil {
			answerError(w, http.StatusInternalServerError, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		list := fault.List{Faults: []fault.Listed{}}
		for _, f := range s.list() {
			list.Faults = append(list.Faults, f.Listed)
		}
		answerJSON(w, http.StatusOK, list)
	})
	server := &http.Server{
		Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: s.config.Patience,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
	defer context.AfterFunc(s.ctx, func() { _ = server.Close() })()
	_ = server.Serve(s.listener)
}

func answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func answerError(w http.ResponseWriter, code int, err error) {
	answerJSON(w, code, fault.Error{Error: err.Error()})
}

func (s *Set) put(w http.ResponseWriter, r *http.Request) {
	var f fault.Fault
	decoder := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err != nil {
		answerError(w, http.StatusBadRequest, fmt.Errorf("%w: %w", errInvalid, err))
		return
	}
	if r.URL.Query().Get("dryRun") != "" {
		_, _, err = s.prepare(r.Context(), f)
	} else {
		err = s.begin(r.Context(), r.PathValue("id"), f)
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errUnsupported):
		answerError(w, http.StatusNotImplemented, err)
	case errors.Is(err, errNoTarget):
		answerError(w, http.StatusNotFound, err)
	case errors.Is(err, errInvalid):
		answerError(w, http.StatusBadRequest, err)
	default:
		answerError(w, http.StatusInternalServerError, err)
	}
}
