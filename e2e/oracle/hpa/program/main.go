// Command hpa answers, for cases on standard input, what the HorizontalPodAutoscaler of Kubernetes does.
//
// `hpa replicas` asks the replica calculator, and `hpa controller` runs the whole controller in virtual time. Both
// read one JSON document per line and write one per line, in the same order.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/util/runtime"
)

// answers maps each command to the function that answers a line.
var answers = map[string]func(line []byte) (any, error){
	"replicas": func(line []byte) (any, error) {
		given := replicaCase{}
		err := json.Unmarshal(line, &given)
		return given.run(), err
	},
	"controller": func(line []byte) (any, error) {
		given := scenario{}
		if err := json.Unmarshal(line, &given); err != nil {
			return nil, err
		}
		decisions, err := given.run()
		return decisions, err
	},
}

func main() {
	testing.Init()
	flag.Parse()
	answer, known := answers[flag.Arg(0)]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: hpa replicas|controller")
		os.Exit(2)
	}
	// The default handlers print each error and sleep between two errors.
	runtime.ErrorHandlers = nil
	// The test framework prints its verdict to the standard output.
	out := os.Stdout
	os.Stdout = os.Stderr
	// A bubble of virtual time exists only inside a test.
	test := testing.InternalTest{Name: "oracle", F: func(t *testing.T) { serve(t, out, answer) }}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{test}, nil, nil)
}

// serve answers each line in a bubble of its own, whose time starts at the same moment.
func serve(t *testing.T, output io.Writer, answer func(line []byte) (any, error)) {
	lines, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(output)
	lines.Buffer(nil, 64<<20)
	encoder := json.NewEncoder(out)
	for number := 1; lines.Scan(); number++ {
		synctest.Test(t, func(t *testing.T) {
			result, err := answer(lines.Bytes())
			if err == nil {
				err = encoder.Encode(result)
			}
			if err != nil {
				t.Fatalf("line %d: %v", number, err)
			}
		})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
}
