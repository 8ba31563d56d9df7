package processnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// imageFile is a file or directory of a container's image that this machine does not have at that path.
type imageFile struct {
	path  string // in the image
	from  string // on this machine; never written to
	local string // the container's own copy
}

// copy makes the copy anew, as each container begins with what its image has.
func (f imageFile) copy() error {
	if _, err := os.Stat(f.from); err != nil {
		return err
	}
	_, err := volumes.Copy(f.from, f.local)
	return err
}

// imageFiles lists what the pod's annotation says that the container's image has, without what its volumes hide.
func (c *container) imageFiles(annotations map[string]string) (all []imageFile, err error) {
	text := annotations[cluster.AnnotationFilesPrefix+c.spec.Name]
	if text == "" {
		return nil, nil
	}
	var files map[string]string
	if err := json.Unmarshal([]byte(text), &files); err != nil {
		return nil, fmt.Errorf("annotation %s%s: %w", cluster.AnnotationFilesPrefix, c.spec.Name, err)
	}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		clean := filepath.Clean(path)
		if slices.ContainsFunc(c.program.mounts, func(m volumes.Mount) bool {
			return clean == m.Path || strings.HasPrefix(clean, m.Path+"/")
		}) {
			continue
		}
		all = append(all, imageFile{
			path: clean, from: files[path], local: filepath.Join(c.pod.dir, "image", c.spec.Name, strconv.Itoa(i)),
		})
	}
	return all, nil
}
