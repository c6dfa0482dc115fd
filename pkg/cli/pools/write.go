// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// write prints the documents as kubectl apply takes them.
func (p *plan) write(out io.Writer) error {
	for _, document := range p.documents {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(document.object)
		if err != nil {
			return fmt.Errorf("%s: %w", key(document.object), err)
		}
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		data, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("%s: %w", key(document.object), err)
		}
		comment := ""
		if document.comment != "" {
			comment = "# " + document.comment + "\n"
		}
		if _, err := fmt.Fprintf(out, "---\n%s%s", comment, data); err != nil {
			return err
		}
	}
	return nil
}
