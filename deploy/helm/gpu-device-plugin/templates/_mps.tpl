{{/* The MPS supervisor. */}}

{{/* Labels of its own: NVIDIA's two DaemonSets share one selector. */}}
{{- define "gdp.mps.identity" -}}
app.kubernetes.io/name: {{ include "gdp.name" . | trunc 59 }}-mps
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gdp.mps.securityContext" -}}
{{- if .Values.mps.securityContext -}}
{{ toYaml .Values.mps.securityContext }}
{{- else -}}
runAsUser: 0
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  # SYS_ADMIN: setting a GPU's compute mode, and listing MIG instances. The others: the daemon starts servers that run as
  # their clients' users, opens its pipes to these, and ends them.
  add: [SYS_ADMIN, SETUID, SETGID, CHOWN, FOWNER, KILL]
{{- end -}}
{{- end -}}

{{/* No limit by itself: daemons and their servers count to this container, and its end is the end of every client. */}}
{{- define "gdp.mps.resources" -}}
{{- .Values.mps.resources | default (dict "requests" (dict "cpu" "50m" "memory" "64Mi")) | toYaml -}}
{{- end -}}
