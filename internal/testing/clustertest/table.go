package clustertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

var age = regexp.MustCompile(`^(\d+[smhdy])+$`)

// Table asks the API server for what kubectl get shows of a list of objects: a line of column names, those that only
// -o wide shows with a +, and the cells of each object. A valid age is shown as AGE, no value as nil. The path is the
// list's, such as /api/v1/pods.
func Table(t testing.TB, config *rest.Config, path string) [][]string {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %s (%v)", path, resp.Status, body, err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatal(err)
	}
	lines := [][]string{nil}
	for _, c := range table.ColumnDefinitions {
		name := c.Name
		if c.Priority > 0 {
			name += "+"
		}
		lines[0] = append(lines[0], name)
	}
	for _, row := range table.Rows {
		var line []string
		for i, cell := range row.Cells {
			text := fmt.Sprint(cell)
			switch {
			case cell == nil:
				text = "nil"
			case table.ColumnDefinitions[i].Type == "date" && age.MatchString(text):
				text = "AGE"
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	return lines
}
