{{/* How many nodes the affinity and nodeSelector let through now. Takes the values and the nodes; offline there are none. */}}

{{- define "gdp.matching" -}}
{{- $nodes := .nodes | default list -}}
{{- $matching := list -}}
{{- range $nodes -}}
{{- if include "gdp.matches" (dict "labels" (.metadata.labels | default dict) "values" $.values) -}}
{{- $matching = append $matching .metadata.name -}}
{{- end -}}
{{- end -}}
{{- if not $nodes -}}
It runs on nodes that its affinity and nodeSelector match; to see whether there are any:

  kubectl get nodes -L feature.node.kubernetes.io/pci-10de.present -L nvidia.com/gpu.present
{{- else if $matching -}}
{{ len $matching }} of {{ len $nodes }} nodes {{ len $matching | eq 1 | ternary "matches" "match" }} the affinity and nodeSelector now: {{ join ", " (slice $matching 0 (min 10 (len $matching))) }}{{ if gt (len $matching) 10 }}, ...{{ end }}
{{- else -}}
WARNING: none of {{ len $nodes }} nodes matches the affinity and nodeSelector now, so no pod will start. Node Feature Discovery labels nodes
with an NVIDIA GPU (feature.node.kubernetes.io/pci-10de.present; a label with the class in it, pci-0302_10de.present, does not count: set its
deviceLabelFields to [vendor]). Or label them by hand:

  kubectl label node NODE nvidia.com/gpu.present=true
{{- end -}}
{{- end -}}

{{/* `true` or nothing. Takes a node's labels and the values. */}}
{{- define "gdp.matches" -}}
{{- $labels := .labels -}}
{{- $selected := true -}}
{{- range $key, $value := .values.nodeSelector -}}
{{- if ne (get $labels $key) $value -}}
{{- $selected = false -}}
{{- end -}}
{{- end -}}
{{- $affinity := (.values.affinity | default dict).nodeAffinity | default dict -}}
{{- $required := $affinity.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $some := empty $required.nodeSelectorTerms -}}
{{- range $required.nodeSelectorTerms -}}
{{- $all := true -}}
{{- range .matchExpressions -}}
{{- $there := hasKey $labels .key -}}
{{- $in := and $there (has (get $labels .key) (.values | default list)) -}}
{{- /* Gt and Lt, which nobody uses here, count as true: better one node too many than a warning without a cause. */ -}}
{{- if not (get (dict "In" $in "NotIn" (not $in) "Exists" $there "DoesNotExist" (not $there) "Gt" true "Lt" true) .operator) -}}
{{- $all = false -}}
{{- end -}}
{{- end -}}
{{- if $all -}}
{{- $some = true -}}
{{- end -}}
{{- end -}}
{{- if and $selected $some -}}
true
{{- end -}}
{{- end -}}
