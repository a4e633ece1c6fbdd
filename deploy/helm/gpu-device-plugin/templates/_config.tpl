{{/* Which file the plugin reads, and what the chart can tell from it. */}}

{{- define "gdp.config.map" -}}
{{- if .Values.config.name -}}
{{- .Values.config.name -}}
{{- else if and .Values.config.map (include "gdp.config.key" .) -}}
{{- include "gdp.fullname" . -}}-configs
{{- end -}}
{{- end -}}

{{/* The key of the ConfigMap; empty: no file. NVIDIA's rule: `default`, else the fallback strategies in order. */}}
{{- define "gdp.config.key" -}}
{{- $key := .Values.config.default -}}
{{- $map := .Values.config.map | default dict -}}
{{- if not $key -}}
{{- $found := false -}}
{{- range .Values.config.fallbackStrategies -}}
{{- if not $found -}}
{{- if and (eq . "named") (hasKey $map "default") -}}
{{- $key = "default" -}}
{{- $found = true -}}
{{- else if and (eq . "single") (eq (len $map) 1) -}}
{{- $key = keys $map | first -}}
{{- $found = true -}}
{{- else if eq . "empty" -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $key -}}
{{- end -}}

{{/* What the values and the file ask for, as JSON; what `config.name` says the chart can't see. */}}
{{- define "gdp.asked" -}}
{{- $file := dict -}}
{{- $key := include "gdp.config.key" . -}}
{{- if and .Values.config.map $key -}}
{{- $file = get .Values.config.map $key | fromYaml -}}
{{- end -}}
{{- /* What is no mapping is refused elsewhere, by name. */ -}}
{{- $flags := kindIs "map" $file.flags | ternary $file.flags dict -}}
{{- $plugin := kindIs "map" $flags.plugin | ternary $flags.plugin dict -}}
{{- $sharing := kindIs "map" $file.sharing | ternary $file.sharing dict -}}
{{- $strategies := .Values.deviceListStrategy | default $plugin.deviceListStrategy | default "envvar" -}}
{{- $strategies = kindIs "slice" $strategies | ternary $strategies (regexSplit "\\s*,\\s*" (toString $strategies) -1) -}}
{{- $mig := .Values.migStrategy | default $flags.migStrategy -}}
{{- dict
  "mig" (has $mig (list "single" "mixed"))
  "volumeMounts" (has "volume-mounts" $strategies)
  "cdi" (or (has "cdi-annotations" $strategies) (has "cdi-cri" $strategies))
  "mps" (not (empty $sharing.mps))
  "failOnInitError" (not (kindIs "invalid" $flags.failOnInitError))
| toJson -}}
{{- end -}}

{{/* What a file may ask for -> the value that must say so where the chart can't see it and nothing is said, as JSON. */}}
{{- define "gdp.config.unsaid" -}}
{{- $unsaid := dict -}}
{{- if and (kindIs "invalid" .Values.privileges.mig) (not .Values.migStrategy) -}}
{{- $_ := set $unsaid "migStrategy: single, mixed" "privileges.mig: true" -}}
{{- end -}}
{{- if kindIs "invalid" .Values.mps.enabled -}}
{{- $_ := set $unsaid "sharing.mps" "mps.enabled: true" -}}
{{- end -}}
{{- if not .Values.deviceListStrategy -}}
{{- $_ := set $unsaid "deviceListStrategy: volume-mounts" "deviceListStrategy: the same" -}}
{{- if kindIs "invalid" .Values.cdi.enabled -}}
{{- $_ := set $unsaid "deviceListStrategy: cdi-annotations, cdi-cri" "cdi.enabled: true, nvidiaDriverRoot" -}}
{{- end -}}
{{- end -}}
{{- if kindIs "invalid" .Values.failOnInitError -}}
{{- $_ := set $unsaid "failOnInitError: true" "failOnInitError: true" -}}
{{- end -}}
{{- toJson $unsaid -}}
{{- end -}}

{{/* `true` or nothing: whether a feature is on. Takes the root, the value that says so, and the feature's name. */}}
{{- define "gdp.on" -}}
{{- if kindIs "bool" .value -}}
{{- if .value -}}true{{- end -}}
{{- else if get (include "gdp.asked" .root | fromJson) .feature -}}
true
{{- end -}}
{{- end -}}

{{- define "gdp.mig" -}}
{{- include "gdp.on" (dict "root" . "value" .Values.privileges.mig "feature" "mig") -}}
{{- end -}}

{{- define "gdp.cdi" -}}
{{- include "gdp.on" (dict "root" . "value" .Values.cdi.enabled "feature" "cdi") -}}
{{- end -}}

{{- define "gdp.volumeMounts" -}}
{{- include "gdp.on" (dict "root" . "value" nil "feature" "volumeMounts") -}}
{{- end -}}

{{- define "gdp.mps" -}}
{{- include "gdp.on" (dict "root" . "value" .Values.mps.enabled "feature" "mps") -}}
{{- end -}}
