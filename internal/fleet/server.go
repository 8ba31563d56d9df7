package fleet

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Config says how a campaign serves its workers. Dir, Source and Trommel are required.
type Config struct {
	// Address is host:port; port 0 is a free one. If empty, it is that of the campaign that is resumed.
	Address string
	Dir     string // for credentials and what goes to and from workers; created
	Source  Source
	Trommel string        // the build that workers must be of; see Build
	Lease   time.Duration // default: 30 s
	// Say shows the user a message; default: it does nothing.
	Say func(text string)
}

// Server is the campaign's end of the protocol.
type Server struct {
	config      Config
	queue       *Queue
	blobs       *blobs
	credentials *Credentials
	bundle      *Bundle
	bundleIs    string // its digest
	campaign    []byte // the first answer to a worker
	listener    net.Listener
	http        *http.Server
	served      chan struct{}
	feed        *feed

	mu         sync.Mutex
	baselines  map[*baseline.Baseline]string // their digests
	complained time.Time                     // when the user last saw a message about an error here
}

// Serve gathers what the runs need, and serves workers until Close. A mistake in the suite is a *run.UserError.
func Serve(config Config) (*Server, error) {
	if config.Lease == 0 {
		config.Lease = defaultLease
	}
	if config.Say == nil {
		config.Say = func(string) {}
	}
	s := &Server{
		config: config, queue: NewQueue(config.Lease), blobs: newBlobs(filepath.Join(config.Dir, "blobs")),
		served: make(chan struct{}), feed: newFeed(), baselines: map[*baseline.Baseline]string{},
	}
	var err error
	if s.bundle, err = config.Source.bundle(s.blobs); err != nil {
		return nil, err
	}
	data, err := s.bundle.encode()
	if err != nil {
		return nil, err
	}
	s.bundleIs = s.blobs.add(data)
	s.campaign, err = json.Marshal(Campaign{
		Protocol: protocol, Trommel: config.Trommel, Lease: config.Lease, Bundle: s.bundleIs,
	})
	if err != nil {
		return nil, err
	}
	if s.credentials, err = loadCredentials(config.Dir); err != nil {
		return nil, err
	}
	// What was coming in when an earlier campaign was killed is of no use.
	if err := os.RemoveAll(s.incoming()); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.incoming(), record.DirMode); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) incoming() string { return filepath.Join(s.config.Dir, "incoming") }

// listen listens where workers look for the campaign.
func (s *Server) listen() error {
	pair, err := tls.X509KeyPair(s.credentials.Cert, s.credentials.Key)
	if err != nil {
		return err
	}
	address := s.config.Address
	if address == "" {
		address = s.credentials.Address
	}
	if s.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("serve workers: %w", err)
	}
	if s.credentials.Address = s.listener.Addr().String(); err == nil {
		err = s.credentials.keep(s.config.Dir)
	}
	if err != nil {
		return errors.Join(err, s.listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/campaign", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.campaign) })
	mux.HandleFunc("GET /v1/blobs/{digest}", s.sendBlob)
	mux.HandleFunc("GET /v1/told", s.sendLines)
	mux.HandleFunc("POST /v1/workers/{worker}/take", s.take)
	mux.HandleFunc("POST /v1/workers/{worker}/leave", func(w http.ResponseWriter, r *http.Request) {
		s.queue.Leave(r.PathValue("worker"))
	})
	mux.HandleFunc("POST /v1/leases/{lease}/beat", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, s.queue.Beat(r.PathValue("lease")))
	})
	mux.HandleFunc("POST /v1/leases/{lease}/return", func(_ http.ResponseWriter, r *http.Request) {
		s.queue.Return(r.PathValue("lease"))
	})
	mux.HandleFunc("PUT /v1/leases/{lease}/record/{digest}", s.receiveRecord)
	mux.HandleFunc("POST /v1/leases/{lease}/result", s.receiveResult)
	s.http = &http.Server{
		Handler:           s.authorized(mux),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}},
		ErrorLog:          log.New(io.Discard, "", 0), // strangers that knock are nothing to tell
	}
	go func() {
		defer close(s.served)
		_ = s.http.ServeTLS(s.listener, "", "") // Close ends it
	}()
	return nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Token is what a worker needs to be let in.
func (s *Server) Token() (string, error) { return s.credentials.Token() }

// Contents returns what all workers need, so that they can have it from elsewhere: the control plane, the controllers'
// executables, and everything else. Baselines, which are learned later, and plans are not there.
func (s *Server) Contents() (controlPlane, controllers, rest []Content) {
	controlPlane, controllers, rest = s.bundle.contents(s.blobs)
	return controlPlane, controllers, append(rest, s.blobs.content(s.bundleIs))
}

// Counts returns what the campaign's queue has seen.
func (s *Server) Counts() Counts { return s.queue.Counts() }

// Close stops the server. Over: the workers learn that the campaign is over, as far as they ask within a few seconds;
// otherwise they wait for it to be resumed.
func (s *Server) Close(over bool) error {
	if over {
		s.queue.Close()
		ctx, cancel := context.WithTimeout(context.Background(), sayOver)
		defer cancel()
		_ = s.queue.awaitGone(ctx) // a worker that is away now finds no campaign, and ends after its patience
		s.feed.awaitRead(ctx)
	}
	err := s.http.Close()
	<-s.served
	s.queue.Close()
	return errors.Join(err, os.RemoveAll(s.incoming()))
}

// sayOver is how long a campaign that is over waits for workers to ask once more.
const sayOver = 5 * time.Second

// authorized lets requests through that carry the campaign's secret.
func (s *Server) authorized(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + s.credentials.Secret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			http.Error(w, "the token is not that of this campaign", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answer answers with an error, or with nothing.
func (s *Server) answer(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errNoLease), errors.Is(err, errOver):
		http.Error(w, err.Error(), http.StatusGone)
	default:
		s.complain(err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// complainEvery limits how often the user sees errors with this machine's files: all workers meet them.
const complainEvery = time.Minute

// complain shows the user that a file of the campaign cannot be read or written: workers cannot do anything about it.
func (s *Server) complain(err error) {
	var file *fs.PathError
	if !errors.As(err, &file) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.complained) < complainEvery {
		return
	}
	s.complained = time.Now()
	s.config.Say("workers cannot go on: " + err.Error())
}

// sendBlob sends a compressed blob. A download that was interrupted can go on.
func (s *Server) sendBlob(w http.ResponseWriter, r *http.Request) {
	file, err := s.blobs.compressed(r.PathValue("digest"))
	if errors.Is(err, os.ErrNotExist) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		s.answer(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	http.ServeFile(w, r, file)
}

// take hands out a run, or answers 204 if there is none for a while.
func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pollFor)
	defer cancel()
	job, err := s.queue.Take(ctx, r.PathValue("worker"))
	switch {
	case r.Context().Err() != nil && err == nil:
		s.queue.Return(job.Lease) // the worker has gone
	case ctx.Err() != nil && err != nil:
		w.WriteHeader(http.StatusNoContent)
	case err != nil:
		s.answer(w, err)
	default:
		if err := json.NewEncoder(w).Encode(job); err != nil {
			s.queue.Return(job.Lease)
		}
	}
}

// receiveRecord keeps a compressed record until its result comes. To send it again does nothing.
func (s *Server) receiveRecord(w http.ResponseWriter, r *http.Request) {
	lease, digest := r.PathValue("lease"), r.PathValue("digest")
	if !validDigest.MatchString(digest) {
		http.Error(w, "this is not a digest", http.StatusBadRequest)
		return
	}
	if !s.queue.knows(lease) {
		s.answer(w, errNoLease)
		return
	}
	err := s.keepRecord(s.record(lease, digest), digest, http.MaxBytesReader(w, r.Body, maxRecord))
	if wrong := new(wrongContentError); errors.As(err, &wrong) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.answer(w, err)
}

type wrongContentError struct{ error }

func (s *Server) keepRecord(path, digest string, content io.Reader) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	out, err := os.CreateTemp(s.incoming(), ".record-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, hash), content); err != nil {
		return &wrongContentError{errors.Join(err, out.Close())}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if hex.EncodeToString(hash.Sum(nil)) != digest {
		return &wrongContentError{errors.New("the content has another digest")}
	}
	return os.Rename(out.Name(), path)
}

// record is where the record of a lease waits that has come in.
func (s *Server) record(lease, digest string) string {
	return filepath.Join(s.incoming(), lease+"-"+digest+".tar.gz")
}

// receiveResult takes the result of a run.
func (s *Server) receiveResult(w http.ResponseWriter, r *http.Request) {
	var result Result
	lease := r.PathValue("lease")
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&result); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if result.Record != "" {
		if !validDigest.MatchString(result.Record) {
			http.Error(w, "this is not a digest", http.StatusBadRequest)
			return
		}
		if !s.queue.knows(lease) {
			s.answer(w, errNoLease)
			return
		}
		result.file = s.record(lease, result.Record)
		if _, err := os.Stat(result.file); err != nil {
			http.Error(w, "the record has not come", http.StatusConflict)
			return
		}
	}
	err := s.queue.Finish(lease, result)
	if errors.Is(err, errNoLease) && result.file != "" {
		_ = os.Remove(result.file)
	}
	s.answer(w, err)
}

// Runner returns a runner that has its runs made by workers. It is ready when there are at least that many workers.
func (s *Server) Runner(workers int) run.Runner { return &remote{s, workers} }

type remote struct {
	server  *Server
	workers int
}

// Start waits until there is a worker for the runner.
func (r *remote) Start(ctx context.Context) error { return r.server.queue.AwaitWorkers(ctx, r.workers) }

// RunWith has a worker run the plan.
func (r *remote) RunWith(ctx context.Context, p *plan.Plan, dir string, o run.RunOptions) (*record.Meta, error) {
	s := r.server
	if len(o.Functions) > 0 {
		return nil, &run.UserError{Err: errors.New("workloads that call Go functions run on one machine only")}
	}
	job, err := s.job(p, o)
	if err != nil {
		return nil, err
	}
	result, err := s.queue.Do(ctx, job)
	if err != nil {
		return nil, err
	}
	if result.Record != "" {
		if err := s.unpackTo(result, dir); err != nil {
			return nil, fmt.Errorf("the record that came is of no use: %w", err)
		}
	}
	if err := s.note(p, dir, o, result.Left); err != nil {
		return nil, err
	}
	switch {
	case result.User:
		return nil, &run.UserError{Err: errors.New(result.Error)}
	case result.Error != "":
		return nil, errors.New(result.Error)
	case result.Record == "":
		return nil, errors.New("the worker has sent no record")
	}
	return s.ownPaths(p, dir)
}

// note takes in what a worker has left out of a record: a reader must find the files of observations, or it takes the
// run for one that was killed.
func (s *Server) note(p *plan.Plan, dir string, o run.RunOptions, left []string) error {
	var logs []string
	for _, name := range left {
		if name != record.ObservationsFile && name != record.HistoryFile {
			logs = append(logs, name)
		} else if err := os.WriteFile(filepath.Join(dir, name), nil, record.FileMode); err != nil {
			return err
		}
	}
	if len(logs) > 0 && !o.Brief {
		s.config.Say(fmt.Sprintf("%s: its record was too large; left out: %s", p.TestName, strings.Join(logs, ", ")))
	}
	return nil
}

// job is what a worker receives about a run.
func (s *Server) job(p *plan.Plan, o run.RunOptions) (Job, error) {
	own := *p
	own.Suite, own.Variant = "", ""
	text, err := plan.Marshal(&own)
	if err != nil {
		return Job{}, err
	}
	job := Job{
		Name: p.TestName, Plan: text, File: p.File, Trace: o.Trace, FindTypes: o.FindTypes, Brief: o.Brief,
		Shift: o.Shift, Polls: o.Polls, History: o.History,
	}
	if o.Baseline == nil {
		return job, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if job.Baseline = s.baselines[o.Baseline]; job.Baseline != "" {
		return job, nil
	}
	data, err := encodeReference(o.Baseline)
	if err != nil {
		return Job{}, err
	}
	job.Baseline = s.blobs.add(data)
	s.baselines[o.Baseline] = job.Baseline
	return job, nil
}

// unpackTo makes the directory of a record.
func (s *Server) unpackTo(result Result, dir string) error {
	f, err := os.Open(result.file)
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(result.file)
	}()
	return unpackRecord(f, dir, 4*maxRecord)
}

// ownPaths writes into a record where plan and suite are on this machine.
func (s *Server) ownPaths(p *plan.Plan, dir string) (*record.Meta, error) {
	file := filepath.Join(dir, record.MetaFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	meta := &record.Meta{}
	if err := json.Unmarshal(data, meta); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if meta.Suite == s.config.Source.Suite.File && meta.PlanFile == p.File {
		return meta, nil
	}
	meta.Suite, meta.PlanFile = s.config.Source.Suite.File, p.File
	if data, err = json.MarshalIndent(meta, "", "  "); err != nil {
		return nil, err
	}
	return meta, atomicfile.Write(file, append(data, '\n'), record.FileMode)
}
