package embedded

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// logsIn lists the logs in a directory, without those in directories below it.
func logsIn(dir string) ([]cluster.Log, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var logs []cluster.Log
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		if err != nil {
			return nil, err
		}
		logs = append(logs, cluster.Log{
			Name: e.Name(), Size: info.Size(),
			Open: func(offset int64) (io.ReadCloser, error) { return openAt(filepath.Join(dir, e.Name()), offset) },
		})
	}
	return logs, nil
}

func openAt(file string, offset int64) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
