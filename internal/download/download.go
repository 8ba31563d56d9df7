// Package download fetches files whose content is known, by their size and checksum. A download that is cut off goes on
// where it ended, also in another process.
package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// DefaultStall is how long a download waits for the next bytes, unless its File says so.
const DefaultStall = 20 * time.Second

// attempts is how often a download that is cut off goes on, as long as each attempt brings it further.
const attempts = 5

// File is a file to download.
type File struct {
	URL    string
	Size   int64  // bytes
	SHA256 string // in hexadecimal digits

	Client   *http.Client     // default: one that uses the proxies of the environment
	Stall    time.Duration    // without any bytes for this long, the download fails; default: DefaultStall
	Progress func(done int64) // called with the number of bytes that are there, from one goroutine at a time
}

// ChecksumError says that what was downloaded is not the file that was wanted.
type ChecksumError struct{ URL, Got, Want string }

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s has the SHA-256 checksum %s, want %s", e.URL, short(e.Got), short(e.Want))
}

func short(sum string) string { return sum[:min(len(sum), 16)] + "…" }

// To downloads the file to path. A part of it is never visible there: it is written to path with PartSuffix, and is
// renamed when its checksum is right. After a failure that part stays, for the next call to go on with, unless its
// content is wrong. Two calls with one path must not run at the same time. Errors have one line.
func (f *File) To(ctx context.Context, path string) error {
	part, err := os.OpenFile(path+PartSuffix, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer part.Close()
	d := &attempt{File: f, part: part}
	if err := d.read(); err != nil {
		return err
	}
	older := d.done > 0
	err = d.complete(ctx)
	var wrong *ChecksumError
	if errors.As(err, &wrong) && older {
		// What an earlier call left may have been wrong.
		if err = d.restart(); err == nil {
			err = d.complete(ctx)
		}
	}
	if err != nil {
		if errors.As(err, &wrong) {
			_ = os.Remove(part.Name())
		}
		return err
	}
	if err := part.Close(); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}

// PartSuffix is added to the name of a file that is not complete.
const PartSuffix = ".part"

// attempt is a download that is under way.
type attempt struct {
	*File
	part *os.File
	done int64
	hash hash.Hash // of what is done
	etag string    // of what is done, as far as this process knows
}

// read takes in what is there already.
func (d *attempt) read() (err error) {
	d.hash = sha256.New()
	d.done, err = io.Copy(d.hash, d.part)
	if err == nil && d.done > d.Size {
		return d.restart()
	}
	return err
}

// restart forgets what is there.
func (d *attempt) restart() error {
	d.hash, d.done, d.etag = sha256.New(), 0, ""
	if err := d.part.Truncate(0); err != nil {
		return err
	}
	_, err := d.part.Seek(0, io.SeekStart)
	return err
}

// complete fetches what is missing and compares the checksum.
func (d *attempt) complete(ctx context.Context) error {
	for n := 1; d.done < d.Size; n++ {
		before := d.done
		again, err := d.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
		case !again || d.done == before || n == attempts:
			return err
		}
	}
	if got := hex.EncodeToString(d.hash.Sum(nil)); !strings.EqualFold(got, d.SHA256) {
		return &ChecksumError{URL: d.URL, Got: got, Want: d.SHA256}
	}
	return nil
}

// fetch asks once for what is missing. again says that asking again may help.
func (d *attempt) fetch(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := d.Stall
	if stall == 0 {
		stall = DefaultStall
	}
	timer := time.AfterFunc(stall, func() { cancel(fmt.Errorf("no bytes arrived for %s", stall)) })
	defer timer.Stop()

	response, err := d.ask(ctx)
	if err != nil {
		return false, fmt.Errorf("get %s: %w", d.URL, reason(ctx, err))
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK: // all of it, from the beginning
		if err := d.restart(); err != nil {
			return false, err
		}
	case http.StatusPartialContent:
		if start := fmt.Sprintf("bytes %d-", d.done); !strings.HasPrefix(response.Header.Get("Content-Range"), start) {
			return false, fmt.Errorf("get %s: the server sends %q instead of %s…", d.URL,
				response.Header.Get("Content-Range"), start)
		}
	default:
		return false, fmt.Errorf("get %s: the server answers %s", d.URL, response.Status)
	}
	if n := response.ContentLength; n >= 0 && n != d.Size-d.done {
		return false, fmt.Errorf("get %s: the file has %d bytes, want %d", d.URL, d.done+n, d.Size)
	}
	if tag := response.Header.Get("ETag"); !strings.HasPrefix(tag, "W/") {
		d.etag = tag
	}
	buffer := make([]byte, 1<<16)
	for d.done < d.Size {
		n, err := response.Body.Read(buffer[:min(int64(len(buffer)), d.Size-d.done)])
		timer.Reset(stall)
		if _, err := d.part.Write(buffer[:n]); err != nil {
			return false, err
		}
		_, _ = d.hash.Write(buffer[:n]) // it never fails
		d.done += int64(n)
		if d.Progress != nil && n > 0 {
			d.Progress(d.done)
		}
		if err != nil && d.done < d.Size {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return true, fmt.Errorf("get %s: cut off after %d of %d bytes: %w", d.URL, d.done, d.Size,
				reason(ctx, err))
		}
	}
	return false, nil
}

// ask sends the request for what is missing.
func (d *attempt) ask(ctx context.Context) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity") // sizes and ranges are those of the file
	if d.done > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.done))
		if d.etag != "" {
			request.Header.Set("If-Range", d.etag)
		}
	}
	client := d.Client
	if client == nil {
		client = http.DefaultClient
	}
	return client.Do(request)
}

// reason returns why a request failed, without its method and URL, which the caller reports.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		return inner.Err
	}
	return err
}
